"""ResNet (He et al., 2015, arXiv 1512.03385): residual blocks of convolutions, classes over their mean."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainwright.spec.families.family import Family
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.convolutions import Convolutions

if TYPE_CHECKING:
    from trainwright.spec.families.config_reader import ConfigReader

EPSILON = 1e-5
"""What batch norms add to variances, in every ResNet of Hugging Face's."""


def _without_attention(spec: ModelSpec) -> ModelSpec:
    """Returns the shape with 1 for the sizes that a convolutional network has not."""
    return replace(spec, heads=1, kv_heads=1, head_size=1, ffn_width=1)


FAMILY = Family(
    kind="vision",
    gated=False,
    norm="layernorm",
    positions="none",
    bias=False,
    activation="relu",
    tied=False,
    ffn_width=lambda width: width,
    complete=_without_attention,
    convolutional=True,
    network="trainwright.model.vision.resnet:ResNet",
    huggingface="trainwright.model.families.resnet",
)


def stages_of(read: ConfigReader) -> dict[str, Any]:
    """Returns the fields of ``Convolutions`` that a configuration has."""
    plain = read.word("layer_type", "bottleneck", ("bottleneck", "basic")) == "basic"
    return {
        "depths": read.sizes("depths", (3, 4, 6, 3)),
        "widths": read.sizes("hidden_sizes", (256, 512, 1024, 2048)),
        "stem_width": read.integer("embedding_size", 64),
        "bottleneck": not plain,
        "stride_first": not plain and read.flag("downsample_in_bottleneck", False),
        "halves_first": read.flag("downsample_in_first_stage", False),
    }


def resnet(read: ConfigReader) -> ModelSpec:
    """ResNet with a classifier, as it is trained here: of images with three channels, with ReLU."""
    read.refuse("num_channels", 3)
    read.refuse("hidden_act", "relu")
    stages = Convolutions(**stages_of(read))
    return FAMILY.shape(
        "resnet",
        layers=stages.blocks,
        width=stages.widths[-1],
        heads=1,
        kv_heads=1,
        head_size=1,
        ffn_width=1,
        vocabulary=0,
        context_tokens=1,
        tied=False,
        norm_epsilon=EPSILON,
        rope_theta=10000.0,
        classes=read.labels(),
        labels=read.label_names(),
        image_size=read.square("image_size", 224),
        convolutions=stages,
    )
