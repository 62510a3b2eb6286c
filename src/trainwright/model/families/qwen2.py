"""Qwen2 and Qwen2.5: Llama's weights, biases of queries, keys and values, windows in some layers."""

from __future__ import annotations

from typing import Any

from trainwright.model.families.llama import LlamaLike
from trainwright.spec.families.rmsnorm import qwen2
from trainwright.spec.model import ModelSpec


def window_keys(spec: ModelSpec) -> dict[str, Any]:
    """Returns the keys of windows; layers are listed, and so may be any."""
    if spec.window_tokens is None:
        return {"use_sliding_window": False}
    numbers = range(spec.layers) if spec.window_layers is None else spec.window_layers
    return {
        "use_sliding_window": True,
        "sliding_window": spec.window_tokens,
        "max_window_layers": min(numbers, default=spec.layers),
        "layer_types": layer_types(spec),
    }


def layer_types(spec: ModelSpec) -> list[str]:
    """Returns what transformers calls the attention of each layer."""
    windowed = [spec.window_of(layer) is not None for layer in range(spec.layers)]
    return ["sliding_attention" if has else "full_attention" for has in windowed]


_FORM = LlamaLike(family="qwen2", architecture="Qwen2", read=qwen2, keys=window_keys)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
