"""Phi-3 and Phi-4 (Microsoft): Llama's weights, with queries, keys and values joined, and gate and up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwright.model.families.llama import LlamaLike
from trainwright.model.families.mistral import window
from trainwright.spec.families.rmsnorm import phi3
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

JOINED: Mapping[str, tuple[str, ...]] = {
    "self_attn.qkv_proj.weight": ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
    "mlp.gate_up_proj.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
}
"""A matrix, and those that lie in it one after the other."""


def _keys(spec: ModelSpec) -> dict[str, Any]:
    scaling = spec.rope_scaling
    before = spec.context_tokens if scaling is None or scaling.original_tokens is None else scaling.original_tokens
    # Else it would be the 32,000th token, which a smaller vocabulary has not.
    return window(spec) | {"original_max_position_embeddings": before, "pad_token_id": None}


_FORM = LlamaLike(family="phi3", architecture="Phi3", read=phi3, keys=_keys)
from_config, to_config = _FORM.from_config, _FORM.to_config


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Our weights in Hugging Face's form."""
    import torch  # a recipe is checked by ``to_config`` before torch is needed

    converted = _FORM.to_hf(weights, spec)
    for layer in range(spec.layers):
        prefix = f"model.layers.{layer}."
        for whole, parts in JOINED.items():
            converted[prefix + whole] = torch.cat([converted.pop(prefix + part) for part in parts])
    return converted


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Hugging Face weights in our form.

    Raises:
        KeyError: a weight is missing; names it.
    """
    keys = spec.kv_heads * spec.head_size
    sizes = ((spec.heads * spec.head_size, keys, keys), (spec.ffn_width, spec.ffn_width))
    cut: dict[str, Tensor] = {}
    for layer in range(spec.layers):
        prefix = f"model.layers.{layer}."
        for (whole, parts), rows in zip(JOINED.items(), sizes, strict=True):
            pieces = weights[prefix + whole].split(rows)
            cut |= {prefix + part: piece.contiguous() for part, piece in zip(parts, pieces, strict=True)}
    return _FORM.from_hf(_Either(cut, weights), spec)


class _Either(dict[str, "Tensor"]):
    """Matrices that were cut, and the weights that were not."""

    def __init__(self, cut: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> None:
        super().__init__(cut)
        self._others = others

    def __missing__(self, name: str) -> Tensor:
        return self._others[name]
