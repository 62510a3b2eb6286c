"""Qwen3: Qwen2 with normalised queries and keys in place of most biases."""

from __future__ import annotations

from typing import Any

from trainwright.model.families.llama import LlamaLike, attention_biases
from trainwright.model.families.qwen2 import window_keys
from trainwright.spec.families.rmsnorm import qwen3
from trainwright.spec.model import ModelSpec


def _keys(spec: ModelSpec) -> dict[str, Any]:
    return window_keys(spec) | {"attention_bias": attention_biases(spec)["attention_bias"]}


_FORM = LlamaLike(family="qwen3", architecture="Qwen3", read=qwen3, keys=_keys)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
