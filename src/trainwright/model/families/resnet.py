"""ResNet (He et al., 2015): residual blocks of convolutions with batch norms, classes over their mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.resnet import EPSILON, resnet
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

SPARE = re.compile(r"\.num_batches_tracked$")
"""What their files have and this network has not: a count of batches, which statistics with a momentum do not use."""
EXACT = (".num_batches_tracked",)
_NORM = ("weight", "bias", "running_mean", "running_var")


def from_config(config: Mapping[str, Any], *, where: str) -> ModelSpec:
    """Returns the shape a Hugging Face configuration describes.

    Raises:
        RecipeError: a key is missing, or asks for something this family does not compute.
    """
    read = ConfigReader(config, where=where)
    for name in read.names("architectures") or ():
        if name != "ResNetForImageClassification":
            raise read.unsupported("architectures", name, "ResNetForImageClassification")
    read.refuse("quantization_config", None)
    return resnet(read)


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape.

    Raises:
        ValueError: batch norms have another epsilon than in Hugging Face's form, or there are no stages.
    """
    stages = spec.convolutions
    if stages is None or spec.norm_epsilon != EPSILON:
        raise ValueError(f"Hugging Face's resnet has stages, and norm_epsilon={EPSILON} only")
    labels = spec.labels or tuple(f"LABEL_{number}" for number in range(spec.classes))
    return {
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "depths": list(stages.depths),
        "downsample_in_bottleneck": stages.stride_first,
        "downsample_in_first_stage": stages.halves_first,
        "embedding_size": stages.stem_width,
        "hidden_act": spec.activation,
        "hidden_sizes": list(stages.widths),
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "image_size": spec.image_size,
        "label2id": {label: number for number, label in enumerate(labels)},
        "layer_type": "bottleneck" if stages.bottleneck else "basic",
        "num_channels": 3,
    }


def _convolutions(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yields our name and theirs of each convolution with the batch norm behind it."""
    stages = spec.convolutions
    assert stages is not None
    yield "stem", "resnet.embedder.embedder"
    block, inputs = 0, stages.stem_width
    for stage, (depth, width) in enumerate(zip(stages.depths, stages.widths, strict=True)):
        for place in range(depth):
            ours, theirs = f"blocks.{block}", f"resnet.encoder.stages.{stage}.layers.{place}"
            if inputs != width or (place == 0 and (stage or stages.halves_first)):
                yield f"{ours}.shortcut", f"{theirs}.shortcut"
            for number in range(3 if stages.bottleneck else 2):
                yield f"{ours}.convolutions.{number}", f"{theirs}.layer.{number}"
            block, inputs = block + 1, width


def _straight(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yields our names and theirs of all that training moves; each has one shape in both."""
    for ours, theirs in _convolutions(spec):
        yield f"{ours}.weight", f"{theirs}.convolution.weight"
        for name in _NORM:
            yield f"{ours}.norm.{name}", f"{theirs}.normalization.{name}"
    for name in ("weight", "bias"):
        yield f"head.{name}", f"classifier.1.{name}"


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Our weights and running statistics in Hugging Face's form, beside a count of batches, which is zero."""
    counts = (f"{theirs}.normalization.num_batches_tracked" for _, theirs in _convolutions(spec))
    return {theirs: weights[ours] for ours, theirs in _straight(spec)} | {
        name: torch.zeros((), dtype=torch.int64) for name in counts
    }


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Hugging Face weights and running statistics in our form. Raises a KeyError that names a missing one."""
    return {ours: weights[theirs] for ours, theirs in _straight(spec)}
