"""``KernelChoice``: which implementation of one and the same arithmetic a training runs; results differ by rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AttentionKernel = Literal["auto", "math", "sdpa"]
"""``math`` makes the whole matrix of scores with two products and a softmax, ``sdpa`` is torch's fused kernel, ``auto``
the faster one: ``math`` for short sequences on a CPU, ``sdpa`` elsewhere."""
UpdateKernel = Literal["fused", "foreach", "loop"]
"""How torch's AdamW goes over memory: once in one kernel, or an operation after the other, each over all tensors
(``foreach``), or for each tensor all of them (``loop``)."""
LossChunk = int | Literal["auto", "whole"]
"""Tokens whose logits exist at a time: so many, those of a whole micro batch, or as many as fill a large cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelChoice:
    """The kernels of a training; the defaults are what is fastest as a rule."""

    attention: AttentionKernel = "auto"
    update: UpdateKernel = "fused"
    loss_chunk_tokens: LossChunk = "auto"


DEFAULT_KERNELS = KernelChoice()
