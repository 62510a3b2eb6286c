"""GLM-4.5 and 4.6 (Zhipu AI, 2025, arXiv 2508.06471): grouped heads and DeepSeek-V3's experts."""

from __future__ import annotations

from typing import Any

from trainwright.model.experts.names import CORRECTION, MixtureLike, deepseek_keys
from trainwright.spec.families.experts import glm4_moe
from trainwright.spec.model import ModelSpec


def _keys(spec: ModelSpec) -> dict[str, Any]:
    bias = spec.qkv_biased
    keys = {"attention_bias": bias, "use_qk_norm": spec.qk_norm, "partial_rotary_factor": spec.rotary_share}
    return {**deepseek_keys(spec), **keys}


EXACT = (CORRECTION,)
_FORM = MixtureLike(
    family="glm4_moe",
    architecture="Glm4Moe",
    of_tokens=False,
    read=glm4_moe,
    keys=_keys,
)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
