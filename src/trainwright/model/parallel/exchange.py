"""What tensor-parallel ranks exchange around matrices that they share; each operation with its gradient.

Between the matrices every rank has the whole residual stream, or with sequence parallelism (Korthikanti et al., 2022)
its own tokens of it. ``enter`` leads to matrices that are cut by outputs, ``leave`` away from those that are cut by
inputs: what one sums in the forward pass the other sums in the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainwright.runtime.collectives import added, gathered, scattered, unmoved

SEQ = 1
"""The dim of tokens in a stream ``[batch, seq, width]``."""


class _Gathered(torch.autograd.Function):
    """All tokens; the backward pass sums gradients and keeps those of the rank's own tokens."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: int, group: str) -> Tensor:
        ctx.ranks, ctx.group = ranks, group
        return gathered(x, ranks, group, SEQ)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return scattered(grads[0], ctx.ranks, ctx.group, SEQ), None, None


class _Scattered(torch.autograd.Function):
    """The sum over all ranks, of the rank's own tokens; the backward pass gathers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: int, group: str) -> Tensor:
        ctx.ranks, ctx.group = ranks, group
        return scattered(x, ranks, group, SEQ)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return gathered(grads[0], ctx.ranks, ctx.group, SEQ), None, None


class _Copied(torch.autograd.Function):
    """The same; the backward pass sums gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str) -> Tensor:
        ctx.group = group
        return unmoved(x, *x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return added(grads[0], ctx.group), None


class _Added(torch.autograd.Function):
    """The sum over all ranks; each of them has the whole gradient already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str) -> Tensor:
        return added(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _Joined(torch.autograd.Function):
    """Parts of all ranks; each has the whole gradient, and keeps that of its own part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: int, group: str, place: tuple[int, int]) -> Tensor:
        ctx.place = (*place, x.shape[place[0]])
        return gathered(x, ranks, group, place[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        dim, rank, size = ctx.place
        return grads[0].narrow(dim, rank * size, size), None, None, None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """The ranks along the axis ``tp``: how many, which of them this one is, and the name of their group.

    ``by_tokens``: between matrices each has its own tokens of the stream (sequence parallelism).
    """

    size: int
    index: int
    group: str
    by_tokens: bool

    def enter(self, x: Tensor) -> Tensor:
        """Returns all tokens, for matrices that are cut."""
        found: Tensor = _Gathered.apply(x, self.size, self.group) if self.by_tokens else _Copied.apply(x, self.group)
        return found

    def leave(self, x: Tensor) -> Tensor:
        """Returns the stream's part of the sum over all ranks."""
        found: Tensor = _Scattered.apply(x, self.size, self.group) if self.by_tokens else _Added.apply(x, self.group)
        return found

    def join(self, x: Tensor) -> Tensor:
        """Returns all tokens, for what every rank computes alike."""
        if not self.by_tokens:
            return x
        found: Tensor = _Joined.apply(x, self.size, self.group, (SEQ, self.index))
        return found

    def own(self, x: Tensor, dim: int = SEQ) -> Tensor:
        """Returns what of all tokens the stream has here."""
        if not self.by_tokens:
            return x
        size = x.shape[dim] // self.size
        return x.narrow(dim, self.index * size, size)

    def all_tokens(self, stream: int) -> int:
        """Returns how many tokens a sequence has of which the stream has so many here."""
        return stream * self.size if self.by_tokens else stream

    def stream_tokens(self, tokens: int) -> int:
        """Returns how many tokens of a sequence the stream has here."""
        return tokens // self.size if self.by_tokens else tokens
