"""ViT (Dosovitskiy et al., 2020): patches of an image as tokens, a class token, classes over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.spec.families.family import Family
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from trainwright.spec.families.config_reader import ConfigReader

FAMILY = Family(
    kind="vision",
    gated=False,
    norm="layernorm",
    positions="learned",
    bias=True,
    activation="gelu",
    tied=False,
    ffn_width=lambda width: 4 * width,
    network="trainwright.model.vision.vit:ViT",
    huggingface="trainwright.model.families.vit",
)


def vit(read: ConfigReader) -> ModelSpec:
    """ViT (Dosovitskiy et al., 2020) with a classifier over its first token."""
    read.refuse("num_channels", 3)
    image, patch = read.square("image_size", 224), read.square("patch_size", 16)
    width, heads = read.integer("hidden_size"), read.integer("num_attention_heads")
    return ModelSpec(
        family="vit",
        kind="vision",
        layers=read.integer("num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_size=read.head_size(width, heads),
        ffn_width=read.integer("intermediate_size"),
        vocabulary=0,
        context_tokens=(image // patch) ** 2 + 1,
        tied=False,
        gated=False,
        norm="layernorm",
        norm_epsilon=read.number("layer_norm_eps", 1e-12),
        positions="learned",
        rope_theta=10000.0,
        bias=True,
        qkv_bias=read.flag("qkv_bias", True),
        activation=read.activation("hidden_act", "gelu"),
        classes=read.labels(),
        labels=read.label_names(),
        image_size=image,
        patch_size=patch,
    )
