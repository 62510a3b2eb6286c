"""Mistral (Jiang et al., 2023): Llama's weights, and a window in all layers or none."""

from __future__ import annotations

from typing import Any

from trainwright.model.families.llama import LlamaLike
from trainwright.spec.families.rmsnorm import mistral
from trainwright.spec.model import ModelSpec


def window(spec: ModelSpec) -> dict[str, Any]:
    """Returns the key of a window in all layers."""
    return {"sliding_window": spec.window_tokens}


_FORM = LlamaLike(family="mistral", architecture="Mistral", read=mistral, keys=window)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
