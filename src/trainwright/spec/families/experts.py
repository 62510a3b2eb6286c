"""Decoders with a mixture of experts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.llama import llama_like
from trainwright.spec.families.rmsnorm import windows
from trainwright.spec.families.rotary import KINDS, rope_scaling
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.parts.rotary import RopeScaling
from trainwright.spec.parts.scales import NO_SCALES, Scales


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
        context_tokens=read.integer("max_position_embeddings", 131072),
        kv_heads=read.integer("num_key_value_heads", 8),
        bias=False,
        experts=experts,
        norm_epsilon=read.number("rms_norm_eps", 1e-5),
        rope_theta=read.rope_theta(1e6),
        **windows(read, read.optional("sliding_window")),
    )


def _with_experts(read: ConfigReader, model: ModelSpec, experts: Experts) -> ModelSpec:
    """Qwen: each ``decoder_sparse_step``-th layer but those of ``mlp_only_layers`` has experts."""
    step, alone = read.integer("decoder_sparse_step", 1), set(read.indices("mlp_only_layers"))
    dense = tuple(layer for layer in range(model.layers) if (layer + 1) % step or layer in alone)
    if len(dense) == model.layers:
        return model
    first = dense == tuple(range(len(dense)))
    return replace(model, experts=replace(experts, dense_layers=len(dense), dense=None if first else dense))


def qwen2_moe(read: ConfigReader) -> ModelSpec:
    """Qwen1.5-MoE and Qwen2-57B-A14B: a gated shared expert."""
    layers, below = read.integer("num_hidden_layers"), read.integer("max_window_layers", 28, least=0)
    on = read.flag("use_sliding_window", False)
    windowed = range(0, min(below, layers), 2)
    model = llama_like(
        read,
        "qwen2_moe",
        context_tokens=read.integer("max_position_embeddings", 32768),
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
        normalised=read.flag("norm_topk_prob", False),
    )
    return _with_experts(read, model, experts)


def qwen3_moe(read: ConfigReader) -> ModelSpec:
    """Qwen3-30B-A3B and Qwen3-235B-A22B: Qwen3 with experts, none shared."""
    on = read.flag("use_sliding_window", False)
    model = llama_like(
        read,
        "qwen3_moe",
        context_tokens=read.integer("max_position_embeddings", 32768),
        qk_norm=True,
        kv_heads=read.integer("num_key_value_heads", 4),
        **windows(read, read.optional("sliding_window") if on else None),
    )
    experts = Experts(
        count=read.either("num_experts", "num_local_experts", default=128),
        active=read.integer("num_experts_per_tok", 8),
        ffn_width=read.integer("moe_intermediate_size"),
        normalised=read.flag("norm_topk_prob", False),
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
        limit=read.number("swiglu_limit", 7.0),
        steepness=read.number("swiglu_alpha", 1.702),
    )
    return llama_like(
        read,
        "gpt_oss",
        context_tokens=read.integer("max_position_embeddings", 131072),
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


def _routing(read: ConfigReader, count: int, usual: str, *, scale: float, groups: int = 1) -> dict[str, Any]:
    """Returns the keys of ``Experts`` that say where tokens may go and how load is balanced.

    ``noaux_tc`` is DeepSeek-V3's bias in place of an auxiliary loss; ``greedy`` looks at no groups. No group, one, or
    as many as a token may go to are no bound. V3's scores are sigmoids, and a group's that of its two best; V2's are
    the softmax, not normalised again, and a group's the best.
    """
    newer = usual == "noaux_tc"
    method = read.word("topk_method", usual, ("greedy", "group_limited_greedy", "noaux_tc"))
    scores = read.word("scoring_func", "sigmoid" if newer else "softmax", ("sigmoid",) if newer else ("softmax",))
    if not newer:
        read.refuse("norm_topk_prob", False)
    groups = 1 if method == "greedy" else read.optional("n_group", groups, least=0) or 1
    active = read.optional("topk_group", -(-groups // 2), least=0) or groups
    bound = {"groups": groups, "active_groups": active} if active < groups else {}
    how = {"scores": scores, "normalised": newer and read.flag("norm_topk_prob", True), "group_best": 1 + newer}
    scale = read.number("routed_scaling_factor", scale)
    return {"count": count, "balance": "bias" if method == "noaux_tc" else "loss", "scale": scale, **how, **bound}


def _deepseek(
    read: ConfigReader, family: str, *, dense_layers: int, shared: int = 1, method: str = "noaux_tc", scale: float = 2.5
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
        **_routing(read, count, method, scale=scale, groups=8 if method == "noaux_tc" else 1),
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
        interleaved=read.flag("rope_interleave", True),
    )
    head_size = read.integer("qk_nope_head_dim", 128)
    bias = read.flag("attention_bias", False)
    return llama_like(
        read,
        family,
        kv_heads=heads,
        head_size=head_size,
        scales=_yarn_scales(read, head_size + latent.rope_size),
        bias=False,
        qkv_bias=bias,
        output_bias=bias,
        latent=latent,
        context_tokens=read.integer("max_position_embeddings", 2048 if method == "greedy" else 4096),
        further_layers=_further_layers(read),
        experts=experts if dense < read.integer("num_hidden_layers") else None,
    )


def _yarn_scales(read: ConfigReader, score_size: int) -> Scales:
    """DeepSeek multiplies scores by the square of 0.1 mscale_all_dim ln(factor) + 1 where positions are scaled."""
    rope = read.rope()
    mscale = rope.number("mscale_all_dim", None)
    if mscale is None or rope.word("rope_type", rope.word("type", "default", KINDS), KINDS) == "default":
        return NO_SCALES
    factor = rope.needed("factor")
    once = 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0
    return Scales(attention=score_size**-0.5 * once**2)


def _further_layers(read: ConfigReader) -> int:
    """Blocks that predict further tokens; none where the key is absent or null."""
    return read.optional("num_nextn_predict_layers", 0, least=0) or 0


def deepseek_v2(read: ConfigReader) -> ModelSpec:
    """DeepSeek-V2 and V2-Lite (arXiv 2405.04434)."""
    return _deepseek(read, "deepseek_v2", dense_layers=0, shared=2, method="greedy", scale=1.0)


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
        **_routing(read, read.either("n_routed_experts", "num_local_experts", default=128), "noaux_tc", scale=1.0),
        active=read.integer("num_experts_per_tok", 8),
        ffn_width=inner,
        shared_ffn_width=inner * read.integer("n_shared_experts", 1, least=0),
        dense_layers=dense,
    )
    return llama_like(
        read,
        "glm4_moe",
        context_tokens=read.integer("max_position_embeddings", 131072),
        rotary_share=read.rope().number("partial_rotary_factor", read.number("partial_rotary_factor", 0.5)),
        kv_heads=read.integer("num_key_value_heads", 8),
        bias=False,
        qkv_bias=read.flag("attention_bias", False),
        qk_norm=read.flag("use_qk_norm", False),
        norm_epsilon=read.number("rms_norm_eps", 1e-5),
        further_layers=_further_layers(read),
        experts=experts if dense < read.integer("num_hidden_layers") else None,
    )
