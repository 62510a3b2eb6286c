"""Decoders with a mixture of experts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.llama import llama_like
from trainwright.spec.families.rmsnorm import windows
from trainwright.spec.families.rotary import rope_scaling
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.parts.rotary import RopeScaling


def mixtral(read: ConfigReader) -> ModelSpec:
    """Mixtral (Jiang et al., 2024): every layer has experts, two of eight for each token."""
    experts = Experts(
        count=read.integer("num_local_experts", 8),
        active=read.integer("num_experts_per_tok", 2),
        ffn_width=read.integer("intermediate_size"),
    )
    return llama_like(
        read,
        "mixtral",
        kv_heads=read.integer("num_key_value_heads", 8),
        bias=False,
        experts=experts,
        norm_epsilon=read.number("rms_norm_eps", 1e-5),
        rope_theta=read.rope_theta(1e6),
        **windows(read, read.optional("sliding_window")),
    )


def _sparse_layers(read: ConfigReader) -> int:
    """Qwen: each ``decoder_sparse_step``-th layer but those of ``mlp_only_layers``."""
    step = read.integer("decoder_sparse_step", 1)
    dense = set(read.indices("mlp_only_layers"))
    return sum((layer + 1) % step == 0 and layer not in dense for layer in range(read.integer("num_hidden_layers")))


def _with_experts(read: ConfigReader, model: ModelSpec, experts: Experts) -> ModelSpec:
    sparse = _sparse_layers(read)
    return replace(model, experts=replace(experts, dense_layers=model.layers - sparse) if sparse else None)


def qwen2_moe(read: ConfigReader) -> ModelSpec:
    """Qwen1.5-MoE and Qwen2-57B-A14B: a gated shared expert."""
    layers, below = read.integer("num_hidden_layers"), read.integer("max_window_layers", 28, least=0)
    on = read.flag("use_sliding_window", False)
    windowed = range(0, min(below, layers), 2)
    model = llama_like(
        read,
        "qwen2_moe",
        bias=False,
        qkv_bias=read.flag("qkv_bias", True),
        **windows(read, read.optional("sliding_window") if on else None, windowed),
    )
    experts = Experts(
        count=read.either("num_experts", "num_local_experts", default=60),
        active=read.integer("num_experts_per_tok", 4),
        ffn_width=read.integer("moe_intermediate_size"),
        shared_ffn_width=read.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    return _with_experts(read, model, experts)


def qwen3_moe(read: ConfigReader) -> ModelSpec:
    """Qwen3-30B-A3B and Qwen3-235B-A22B: Qwen3 with experts, none shared."""
    on = read.flag("use_sliding_window", False)
    model = llama_like(
        read,
        "qwen3_moe",
        qk_norm=True,
        kv_heads=read.integer("num_key_value_heads", 4),
        **windows(read, read.optional("sliding_window") if on else None),
    )
    experts = Experts(
        count=read.either("num_experts", "num_local_experts", default=128),
        active=read.integer("num_experts_per_tok", 8),
        ffn_width=read.integer("moe_intermediate_size"),
    )
    return _with_experts(read, model, experts)


_GPT_OSS_ROPE = RopeScaling(
    kind="yarn", factor=32.0, original_tokens=4096, truncated=False, attention_factor=0.1 * math.log(32.0) + 1.0
)
"""Where its configuration has no rotary settings."""


def gpt_oss(read: ConfigReader) -> ModelSpec:
    """gpt-oss (OpenAI, 2025): biases everywhere, a learned sink per head, a window in every other layer."""
    every_other = range(0, read.integer("num_hidden_layers"), 2)
    experts = Experts(
        count=read.either("num_local_experts", "num_experts", default=128),
        active=read.either("num_experts_per_tok", "experts_per_token", default=4),
        ffn_width=read.integer("intermediate_size"),
        bias=True,
        router_bias=True,
    )
    return llama_like(
        read,
        "gpt_oss",
        head_size=read.integer("head_dim", 64),
        kv_heads=read.integer("num_key_value_heads", 8),
        bias=read.flag("attention_bias", True),
        sinks=True,
        experts=experts,
        norm_epsilon=read.number("rms_norm_eps", 1e-5),
        rope_theta=read.rope_theta(150000.0),
        rope_scaling=rope_scaling(read) if read.names_any("rope_parameters", "rope_scaling") else _GPT_OSS_ROPE,
        **windows(read, read.optional("sliding_window"), every_other),
    )


def _routing(read: ConfigReader, count: int, usual: str) -> dict[str, Any]:
    """Returns the keys of ``Experts`` that say where tokens may go and how load is balanced.

    ``noaux_tc`` is DeepSeek-V3's bias in place of an auxiliary loss; ``greedy`` looks at no groups. No group, one, or
    as many as a token may go to are no bound.
    """
    method = read.word("topk_method", usual, ("greedy", "group_limited_greedy", "noaux_tc"))
    groups = 1 if method == "greedy" else read.optional("n_group", 1, least=0) or 1
    active = read.optional("topk_group", groups, least=0) or groups
    bound = {"groups": groups, "active_groups": active} if active < groups else {}
    return {"count": count, "balance": "bias" if method == "noaux_tc" else "loss", **bound}


def _deepseek(
    read: ConfigReader, family: str, *, dense_layers: int, shared: int = 1, method: str = "noaux_tc"
) -> ModelSpec:
    """Latent attention, many narrow experts, some always on; the first layers dense.

    A ``q_lora_rank`` of null or 0: queries come straight from the width. ``num_nextn_predict_layers`` more blocks
    predict further tokens in training.
    """
    read.refuse("mlp_bias", False)
    read.refuse("moe_layer_freq", 1)
    heads, inner = read.integer("num_attention_heads"), read.integer("moe_intermediate_size")
    count = read.either("n_routed_experts", "num_local_experts", "num_experts")
    dense = read.integer("first_k_dense_replace", dense_layers, least=0)
    experts = Experts(
        **_routing(read, count, method),
        active=read.integer("num_experts_per_tok"),
        ffn_width=inner,
        shared_ffn_width=inner * read.integer("n_shared_experts", shared, least=0),
        dense_layers=dense,
    )
    latent = LatentAttention(
        query_rank=read.optional("q_lora_rank", 1536, least=0) or None,
        kv_rank=read.integer("kv_lora_rank", 512),
        rope_size=read.integer("qk_rope_head_dim", 64),
        value_size=read.integer("v_head_dim", 128),
    )
    bias = read.flag("attention_bias", False)
    return llama_like(
        read,
        family,
        kv_heads=heads,
        head_size=read.integer("qk_nope_head_dim", 128),
        bias=False,
        qkv_bias=bias,
        output_bias=bias,
        latent=latent,
        further_layers=_further_layers(read),
        experts=experts if dense < read.integer("num_hidden_layers") else None,
    )


def _further_layers(read: ConfigReader) -> int:
    """Blocks that predict further tokens; none where the key is absent or null."""
    return read.optional("num_nextn_predict_layers", 0, least=0) or 0


def deepseek_v2(read: ConfigReader) -> ModelSpec:
    """DeepSeek-V2 and V2-Lite (arXiv 2405.04434)."""
    return _deepseek(read, "deepseek_v2", dense_layers=0, shared=2, method="greedy")


def deepseek_v3(read: ConfigReader) -> ModelSpec:
    """DeepSeek-V3 and R1 (arXiv 2412.19437)."""
    return _deepseek(read, "deepseek_v3", dense_layers=3)


def kimi_k2(read: ConfigReader) -> ModelSpec:
    """Kimi K2 (Moonshot AI, 2025): DeepSeek-V3's network with other sizes."""
    return _deepseek(read, "kimi_k2", dense_layers=1)


def glm4_moe(read: ConfigReader) -> ModelSpec:
    """GLM-4.5 and 4.6 (Zhipu AI, 2025): grouped heads and DeepSeek-V3's experts."""
    inner, dense = read.integer("moe_intermediate_size"), read.integer("first_k_dense_replace", 1, least=0)
    experts = Experts(
        **_routing(read, read.either("n_routed_experts", "num_local_experts", default=128), "noaux_tc"),
        active=read.integer("num_experts_per_tok", 8),
        ffn_width=inner,
        shared_ffn_width=inner * read.integer("n_shared_experts", 1, least=0),
        dense_layers=dense,
    )
    return llama_like(
        read,
        "glm4_moe",
        kv_heads=read.integer("num_key_value_heads", 8),
        bias=False,
        qkv_bias=read.flag("attention_bias", False),
        qk_norm=read.flag("use_qk_norm", False),
        norm_epsilon=read.number("rms_norm_eps", 1e-5),
        further_layers=_further_layers(read),
        experts=experts if dense < read.integer("num_hidden_layers") else None,
    )
