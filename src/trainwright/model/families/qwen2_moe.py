"""Qwen1.5-MoE and Qwen2-57B-A14B (Yang et al., 2024, arXiv 2407.10671): a shared expert with a gate."""

from __future__ import annotations

from typing import Any

from trainwright.model.experts.names import MixtureLike, MixtureNames, experts_of, sparse_keys, window_keys
from trainwright.spec.families.experts import qwen2_moe
from trainwright.spec.model import ModelSpec


def _keys(spec: ModelSpec) -> dict[str, Any]:
    experts = experts_of(spec)
    windowed = {"use_sliding_window": True, **window_keys(spec)} if spec.windowed_layers else {}
    return {
        "moe_intermediate_size": experts.ffn_width,
        "norm_topk_prob": experts.normalised,
        "num_experts": experts.count,
        "num_experts_per_tok": experts.active,
        "qkv_bias": spec.qkv_biased,
        "shared_expert_intermediate_size": experts.shared_ffn_width,
        "use_sliding_window": False,
        **sparse_keys(spec),
        **windowed,
    }


_FORM = MixtureLike(
    family="qwen2_moe",
    architecture="Qwen2Moe",
    read=qwen2_moe,
    keys=_keys,
    called=MixtureNames(shared="mlp.shared_expert"),
)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
