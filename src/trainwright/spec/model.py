"""``ModelSpec``: the shape of a transformer, enough to count its parameters and to build it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Norm = Literal["rmsnorm", "layernorm"]
Positions = Literal["rope", "learned", "alibi", "none"]
Activation = Literal["silu", "gelu_tanh", "gelu", "relu"]
Kind = Literal["decoder", "encoder", "vision"]

FAMILIES: tuple[str, ...] = ("llama", "gpt2")
"""Families with a module; the file names under ``model/families`` are held against this by a test."""
PLANNED_FAMILIES: tuple[str, ...] = (*FAMILIES, "bert", "deepseek_v3", "gpt_oss", "mistral", "mixtral", "phi", "falcon",
                                     "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "transformer", "vit")  # fmt: skip
"""Families whose parameters and operations the planner counts; ``transformer`` is a shape given by its numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
    """A mixture of experts in place of the feed-forward: ``active`` of ``count`` experts see each token.

    ``ffn_width`` is one routed expert's; ``shared_ffn_width`` is what every token passes beside them (0: none). The
    first ``dense_layers`` layers keep the model's own feed-forward.
    """

    count: int
    active: int
    ffn_width: int
    shared_ffn_width: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    bias: bool = False
    shared_gate: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values from one narrow latent.

    Each head has ``ModelSpec.head_size`` unrotated and ``rope_size`` rotated query and key elements and ``value_size``
    value elements; ``query_rank`` None: queries come straight from the width.
    """

    query_rank: int | None
    kv_rank: int
    rope_size: int
    value_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """A transformer: decoder, encoder, or vision encoder.

    ``layers`` blocks of width ``width``; ``heads`` query heads and ``kv_heads`` key/value heads of ``head_size``;
    a feed-forward of ``ffn_width``, gated (three matrices) or plain (two); ``vocabulary`` rows of embedding,
    shared with the output head when ``tied``; at most ``context_tokens`` positions.

    The trainer builds ``FAMILIES``; the planner counts every family of ``PLANNED_FAMILIES``.
    """

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    ffn_width: int
    vocabulary: int
    context_tokens: int
    tied: bool
    gated: bool
    norm: Norm
    norm_epsilon: float
    positions: Positions
    rope_theta: float
    bias: bool
    activation: Activation
    kind: Kind = "decoder"
    qkv_bias: bool | None = None
    """Biases of queries, keys and values where they differ from ``bias`` (Qwen2)."""
    qk_norm: bool = False
    window_tokens: int | None = None
    """Sliding-window attention in every layer; None: whole context."""
    experts: Experts | None = None
    latent: LatentAttention | None = None
    segments: int = 0
    """Rows of a token-type embedding (BERT: 2)."""
    pooler: bool = False
    classes: int = 0
    """Outputs of a classification head instead of the vocabulary's."""
    image_size: int = 0
    patch_size: int = 0

    def problems(self) -> tuple[str, ...]:
        """Every reason why no such network can be built; empty where there is none."""
        found = [
            f"{name} must be at least 1, seen {getattr(self, name)}"
            for name in (
                "layers",
                "width",
                "heads",
                "kv_heads",
                "head_size",
                "ffn_width",
                "vocabulary",
                "context_tokens",
            )
            if getattr(self, name) < 1
        ]
        if found:
            return tuple(found)
        if self.family not in PLANNED_FAMILIES:
            found.append(f"unknown family {self.family!r}, expected one of {', '.join(PLANNED_FAMILIES)}")
        if self.heads % self.kv_heads:
            found.append(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.positions == "rope" and self.head_size % 2:
            found.append(f"rotary positions need an even head_size, seen {self.head_size}")
        return tuple(found)
