"""Granite 3 (IBM): Llama's weights, and four scales."""

from __future__ import annotations

from typing import Any

from trainwright.model.families.llama import LlamaLike, attention_biases
from trainwright.spec.families.rmsnorm import granite
from trainwright.spec.model import ModelSpec


def _keys(spec: ModelSpec) -> dict[str, Any]:
    scales = spec.scales
    return attention_biases(spec) | {
        "attention_multiplier": spec.head_size**-0.5 if scales.attention is None else scales.attention,
        "embedding_multiplier": scales.embedding,
        "logits_scaling": scales.logits_divisor,
        "residual_multiplier": scales.residual,
    }


_FORM = LlamaLike(family="granite", architecture="Granite", read=granite, keys=_keys, of_tokens=False)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
