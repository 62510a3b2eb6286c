"""DeepSeek-V3 and R1 (arXiv 2412.19437): V2's attention, experts with sigmoid scores that a bias balances."""

from __future__ import annotations

from typing import Any

from trainwright.model.experts.names import CORRECTION, MixtureLike, deepseek_keys, latent_keys
from trainwright.spec.families.experts import deepseek_v3
from trainwright.spec.model import ModelSpec


def keys(spec: ModelSpec) -> dict[str, Any]:
    """Returns what a configuration says beside Llama's keys."""
    interleaved = spec.latent is not None and spec.latent.interleaved
    return {**deepseek_keys(spec), **latent_keys(spec), "rope_interleave": interleaved}


EXACT = (CORRECTION,)
_FORM = MixtureLike(
    family="deepseek_v3",
    architecture="DeepseekV3",
    read=deepseek_v3,
    keys=keys,
)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
