"""ViT (Dosovitskiy et al., 2020): patches, a class token, learned positions, classes over the class token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.vit import vit
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
_QKV = frozenset(f"attention.{name}" for name in ("query", "key", "value"))
_BLOCK = {
    "attention_norm": "layernorm_before",
    "attention.query": "attention.attention.query",
    "attention.key": "attention.attention.key",
    "attention.value": "attention.attention.value",
    "attention.out": "attention.output.dense",
    "ffn_norm": "layernorm_after",
    "ffn.up": "intermediate.dense",
    "ffn.down": "output.dense",
}
_WHOLE = {
    "patch.bias": "vit.embeddings.patch_embeddings.projection.bias",
    "norm.weight": "vit.layernorm.weight",
    "norm.bias": "vit.layernorm.bias",
    "head.weight": "classifier.weight",
    "head.bias": "classifier.bias",
}
_PATCH, _CLASS, _POSITIONS = (
    f"vit.embeddings.{name}" for name in ("patch_embeddings.projection.weight", "cls_token", "position_embeddings")
)


def from_config(config: Mapping[str, Any], *, where: str) -> ModelSpec:
    """Returns the shape a Hugging Face configuration describes.

    Raises:
        RecipeError: a key is missing, or asks for something this family does not compute.
    """
    read = ConfigReader(config, where=where)
    for name in read.names("architectures") or ():
        if name != "ViTForImageClassification":
            raise read.unsupported("architectures", name, "ViTForImageClassification")
    read.refuse("quantization_config", None)
    return vit(read)


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape.

    Raises:
        ValueError: ViT in Hugging Face form has no grouped heads, no free head size, biases everywhere but in queries,
            keys and values, and one rate of dropout.
    """
    if spec.kv_heads != spec.heads or spec.head_size * spec.heads != spec.width:
        raise ValueError("Hugging Face's vit has kv_heads = heads and head_size = width / heads only")
    if not spec.bias:
        raise ValueError("Hugging Face's vit has biases in attention's output and in the feed-forward")
    if spec.dropout.embedding != spec.dropout.residual:
        raise ValueError("Hugging Face's vit has one rate of dropout: set embedding and residual to the same")
    labels = spec.labels or tuple(f"LABEL_{number}" for number in range(spec.classes))
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "attention_probs_dropout_prob": spec.dropout.attention,
        "hidden_act": _ACTIVATIONS[spec.activation],
        "hidden_dropout_prob": spec.dropout.residual,
        "hidden_size": spec.width,
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "image_size": spec.image_size,
        "intermediate_size": spec.ffn_width,
        "label2id": {label: number for number, label in enumerate(labels)},
        "layer_norm_eps": spec.norm_epsilon,
        "num_attention_heads": spec.heads,
        "num_channels": 3,
        "num_hidden_layers": spec.layers,
        "patch_size": spec.patch_size,
        "qkv_bias": spec.qkv_biased,
    }


def _straight(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yields our names and theirs of the weights that have one shape in both."""
    yield from _WHOLE.items()
    biased = spec.qkv_biased
    for layer in range(spec.layers):
        for ours, theirs in _BLOCK.items():
            ours_here, theirs_here = f"blocks.{layer}.{ours}", f"vit.encoder.layer.{layer}.{theirs}"
            yield f"{ours_here}.weight", f"{theirs_here}.weight"
            if biased or ours not in _QKV:
                yield f"{ours_here}.bias", f"{theirs_here}.bias"


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Our weights in Hugging Face's form: the patches' projection as a convolution's filters."""
    size = spec.patch_size
    return {theirs: weights[ours] for ours, theirs in _straight(spec)} | {
        _PATCH: weights["patch.weight"].reshape(spec.width, -1, size, size),
        _CLASS: weights["class_token"].reshape(1, 1, spec.width),
        _POSITIONS: weights["positions"].unsqueeze(0),
    }


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Hugging Face weights in our form.

    Raises:
        KeyError: a weight is missing; names it.
        RuntimeError: one cannot be cut as it should be.
    """
    return {ours: weights[theirs] for ours, theirs in _straight(spec)} | {
        "patch.weight": weights[_PATCH].flatten(1),
        "class_token": weights[_CLASS].reshape(spec.width),
        "positions": weights[_POSITIONS].squeeze(0),
    }
