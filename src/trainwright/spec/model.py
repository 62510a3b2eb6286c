"""``ModelSpec``: the shape of a transformer, enough to count its parameters and to build it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Norm = Literal["rmsnorm", "layernorm"]
Positions = Literal["rope", "learned"]
Activation = Literal["silu", "gelu_tanh"]

FAMILIES: tuple[str, ...] = ("llama", "gpt2")
"""Families with a module; the file names under ``model/families`` are held against this by a test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """A decoder-only transformer.

    ``layers`` blocks of width ``width``; ``heads`` query heads and ``kv_heads`` key/value heads of ``head_size``;
    a feed-forward of ``ffn_width``, gated (three matrices) or plain (two); ``vocabulary`` rows of embedding,
    shared with the output head when ``tied``; at most ``context_tokens`` positions.
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
        if self.family not in FAMILIES:
            found.append(f"unknown family {self.family!r}, expected one of {', '.join(FAMILIES)}")
        if self.heads % self.kv_heads:
            found.append(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.positions == "rope" and self.head_size % 2:
            found.append(f"rotary positions need an even head_size, seen {self.head_size}")
        return tuple(found)
