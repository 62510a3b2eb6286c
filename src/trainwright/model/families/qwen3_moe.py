"""Qwen3-30B-A3B and Qwen3-235B-A22B (Yang et al., 2025, arXiv 2505.09388): Qwen3 with experts, none shared."""

from __future__ import annotations

from typing import Any

from trainwright.model.experts.names import MixtureLike, experts_of, sparse_keys
from trainwright.spec.families.experts import qwen3_moe
from trainwright.spec.model import ModelSpec


def _keys(spec: ModelSpec) -> dict[str, Any]:
    experts = experts_of(spec)
    return {
        "attention_bias": spec.qkv_biased,
        "moe_intermediate_size": experts.ffn_width,
        "norm_topk_prob": experts.normalised,
        "num_experts": experts.count,
        "num_experts_per_tok": experts.active,
        "sliding_window": spec.window_tokens,
        "use_sliding_window": spec.window_tokens is not None,
        **sparse_keys(spec),
    }


_FORM = MixtureLike(family="qwen3_moe", architecture="Qwen3Moe", read=qwen3_moe, keys=_keys)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
