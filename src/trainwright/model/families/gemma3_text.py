"""Gemma 3's decoder (Google, arXiv 2503.19786): Gemma 2's weights, and norms of queries and keys."""

from __future__ import annotations

from typing import Any

from trainwright.model.families.gemma2 import later_gemma_keys
from trainwright.model.families.llama import LlamaLike
from trainwright.spec.families.rmsnorm import gemma3_text
from trainwright.spec.families.rotary import rope_parameters
from trainwright.spec.model import ModelSpec


def _keys(spec: ModelSpec) -> dict[str, Any]:
    own = spec.rope_theta if spec.window_rope_theta is None else spec.window_rope_theta
    rope = {
        "full_attention": rope_parameters(spec),
        "sliding_attention": {"rope_theta": own, "rope_type": "default"},
    }
    keys = later_gemma_keys(spec) | {"rope_parameters": rope, "rope_local_base_freq": own}
    return keys | ({"architectures": ["Gemma3TextForSequenceClassification"]} if spec.classes else {})


_FORM = LlamaLike(family="gemma3_text", architecture="Gemma3", read=gemma3_text, keys=_keys, of_tokens=False)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
