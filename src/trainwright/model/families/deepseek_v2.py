"""DeepSeek-V2 and V2-Lite (arXiv 2405.04434): latent attention, many narrow experts, some always on."""

from __future__ import annotations

from typing import Any

from trainwright.model.experts.names import MixtureLike, deepseek_keys, latent_keys
from trainwright.spec.families.experts import deepseek_v2
from trainwright.spec.model import ModelSpec


def _keys(spec: ModelSpec) -> dict[str, Any]:
    return {**deepseek_keys(spec), **latent_keys(spec)}


_FORM = MixtureLike(
    family="deepseek_v2",
    architecture="DeepseekV2",
    of_tokens=False,
    read=deepseek_v2,
    keys=_keys,
)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
