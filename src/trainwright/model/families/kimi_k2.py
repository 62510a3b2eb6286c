"""Kimi K2 (Moonshot AI, 2025, arXiv 2507.20534): DeepSeek-V3's network under a name of its own."""

from __future__ import annotations

from trainwright.model.experts.names import CORRECTION, MixtureLike
from trainwright.model.families.deepseek_v3 import keys
from trainwright.spec.families.experts import kimi_k2

EXACT = (CORRECTION,)
_FORM = MixtureLike(
    family="kimi_k2",
    architecture="DeepseekV3",
    of_tokens=False,
    read=kimi_k2,
    keys=keys,
)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
