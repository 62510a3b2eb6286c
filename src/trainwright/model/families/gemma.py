"""Gemma 1 (Google, arXiv 2403.08295): Llama's names of weights."""

from __future__ import annotations

from typing import Any

from trainwright.model.families.llama import ACTIVATIONS, LlamaLike, attention_biases
from trainwright.spec.families.rmsnorm import gemma
from trainwright.spec.model import ModelSpec


def gemma_keys(spec: ModelSpec) -> dict[str, Any]:
    """Returns the keys that all of Gemma's configurations have; versions of transformers read either activation."""
    bias = {"attention_bias": attention_biases(spec)["attention_bias"]}
    return bias | {"hidden_activation": ACTIVATIONS[spec.activation]}


_FORM = LlamaLike(family="gemma", architecture="Gemma", read=gemma, keys=gemma_keys)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
