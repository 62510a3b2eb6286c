"""Gemma 2 (Google, arXiv 2408.00118): Gemma's weights and two more norms in a block."""

from __future__ import annotations

from typing import Any

from trainwright.model.families.gemma import gemma_keys
from trainwright.model.families.llama import LlamaLike
from trainwright.model.families.qwen2 import layer_types
from trainwright.spec.families.rmsnorm import gemma2
from trainwright.spec.model import ModelSpec


def later_gemma_keys(spec: ModelSpec) -> dict[str, Any]:
    """Returns the keys that Gemma 2's and 3's configurations have."""
    scale = spec.scales.attention
    return gemma_keys(spec) | {
        "attn_logit_softcapping": spec.score_cap,
        "final_logit_softcapping": spec.logit_cap,
        "layer_types": layer_types(spec),
        "query_pre_attn_scalar": spec.head_size if scale is None else round(scale**-2),
        "sliding_window": spec.window_tokens,
    }


_FORM = LlamaLike(family="gemma2", architecture="Gemma2", read=gemma2, keys=later_gemma_keys)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
