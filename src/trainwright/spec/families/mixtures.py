"""What recipes of families with experts are completed with."""

from __future__ import annotations

from dataclasses import replace

from trainwright.spec.families.llama import FAMILY as LLAMA
from trainwright.spec.model import ModelSpec

MODULES = "trainwright.model.families"
_UNBIASED = {"qkv_bias": False, "output_bias": False}
_V2 = {"normalised": False, "group_best": 1}
_V3 = {"scores": "sigmoid", "balance": "bias", "scale": 2.5, "loss_weight": 1e-4}
"""As DeepSeek-V3 was trained (arXiv 2412.19437, section 4.2)."""
GPT_OSS_WINDOW = 128
"""Tokens of gpt-oss's window (OpenAI, arXiv 2508.10925, section 2.2)."""


def _as_gpt_oss(spec: ModelSpec) -> ModelSpec:
    """Every other layer has a window, the first too."""
    layers = tuple(range(0, spec.layers, 2))
    return replace(spec, window_tokens=GPT_OSS_WINDOW, window_layers=None if spec.layers == 1 else layers)


MIXTRAL = replace(LLAMA, experts={}, huggingface=f"{MODULES}.mixtral")
QWEN2_MOE = replace(
    LLAMA,
    experts={"normalised": False, "shared_gate": True},
    fields={"qkv_bias": True},
    huggingface=f"{MODULES}.qwen2_moe",
)
QWEN3_MOE = replace(LLAMA, experts={}, fields={"qk_norm": True}, huggingface=f"{MODULES}.qwen3_moe")
GLM4_MOE = replace(
    LLAMA,
    experts={**_V3, "scale": 1.0},
    fields={"qkv_bias": False, "rotary_share": 0.5},
    huggingface=f"{MODULES}.glm4_moe",
)
GPT_OSS = replace(
    LLAMA,
    bias=True,
    experts={"bias": True, "router_bias": True, "limit": 7.0},
    fields={"sinks": True},
    complete=_as_gpt_oss,
    huggingface=f"{MODULES}.gpt_oss",
)
DEEPSEEK_V2 = replace(LLAMA, experts=_V2, latent={}, fields=_UNBIASED, huggingface=f"{MODULES}.deepseek_v2")
DEEPSEEK_V3 = replace(LLAMA, experts=_V3, latent={}, fields=_UNBIASED, huggingface=f"{MODULES}.deepseek_v3")
KIMI_K2 = replace(DEEPSEEK_V3, huggingface=f"{MODULES}.kimi_k2")
