"""Mixtral (Jiang et al., 2024, arXiv 2401.04088): Llama's blocks with two of eight experts for each token."""

from __future__ import annotations

from typing import Any

from trainwright.model.experts.names import MixtureLike, MixtureNames, experts_of
from trainwright.spec.families.experts import mixtral
from trainwright.spec.model import ModelSpec


def _keys(spec: ModelSpec) -> dict[str, Any]:
    experts = experts_of(spec)
    return {
        "intermediate_size": experts.ffn_width,
        "num_experts_per_tok": experts.active,
        "num_local_experts": experts.count,
        "sliding_window": spec.window_tokens,
    }


_FORM = MixtureLike(
    family="mixtral",
    architecture="Mixtral",
    read=mixtral,
    refused=(("router_jitter_noise", 0.0),),
    keys=_keys,
    called=MixtureNames(
        router="block_sparse_moe.gate", experts="block_sparse_moe.experts.{}", parts=("w1", "w3", "w2")
    ),
)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
