"""Muon: momentum, orthogonalised (Jordan et al., 2024), for the matrices inside a network.

The rule is that of ``torch.optim.Muon`` (tests hold it to that); matrices of one shape are stacked, so that the
products of the Newton-Schulz iteration are batched. On small matrices that takes a third of the time (decision 0004).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from trainwright.planner.counts.pieces import STACK_ELEMENTS
from trainwright.runtime.device import native_bf16

COEFFICIENTS = (3.4445, -4.775, 2.0315)
"""Of the quintic iteration, chosen for a steep slope at zero (Jordan et al., 2024)."""
ITERATIONS = 5
EPSILON = 1e-7


class Muon(Optimizer):
    """Muon over matrices; each has a ``momentum_buffer`` of its own shape in its state."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        """Take over parameters.

        Args:
            params: matrices, or groups of them.
            lr: learning rate; a tall matrix is moved by sqrt(rows / columns) times as much.
            momentum: Nesterov momentum, in [0, 1).
            weight_decay: decoupled: a matrix shrinks by ``lr * weight_decay`` each step.

        Raises:
            ValueError: a parameter is no matrix.
        """
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError(f"Muon updates matrices, not tensors of shape {tuple(parameter.shape)}")

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every matrix that has a gradient; ``closure`` computes gradients first, and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for stack in self._stacks([parameter for parameter in group["params"] if parameter.grad is not None]):
                self._update(stack, **{key: group[key] for key in ("lr", "momentum", "weight_decay")})
        return loss

    def _update(self, stack: list[Tensor], *, lr: float, momentum: float, weight_decay: float) -> None:
        gradients = self.local([parameter.grad for parameter in stack if parameter.grad is not None])
        buffers = self.local([self._buffer(parameter) for parameter in stack])
        parts = self.local(stack)
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)  # noqa: SLF001  # torch documents these under their underscore
        directions = self.directions(stack, ahead)
        if weight_decay:
            torch._foreach_mul_(parts, 1 - lr * weight_decay)
        for parameter, part, direction in zip(stack, parts, directions, strict=True):
            rows, columns = self.shape(parameter)
            part.add_(direction, alpha=-lr * math.sqrt(max(1.0, rows / columns)))

    def shape(self, parameter: Tensor) -> torch.Size:
        """Returns the shape of a whole matrix."""
        return parameter.shape

    def local(self, tensors: list[Tensor]) -> list[Tensor]:
        """Returns what of each tensor lies here: all of it."""
        return tensors

    def directions(self, stack: list[Tensor], ahead: Sequence[Tensor]) -> list[Tensor]:
        """Returns what of each matrix's direction lies here, from its Nesterov momentum here."""
        return orthogonal(ahead)

    def sharers(self, parameter: Tensor) -> tuple[int, Hashable]:
        """Returns how many ranks a matrix's stack is dealt over, and which they are: this one alone."""
        return 1, ()

    def _stacks(self, parameters: list[Tensor]) -> Iterator[list[Tensor]]:
        """Yields parameters of one shape, or its transpose, together that the same ranks share.

        As many as keep each rank's stack within ``STACK_ELEMENTS``, but one for each of them.
        """
        alike: dict[tuple[tuple[int, ...], tuple[int, Hashable]], list[Tensor]] = {}
        for parameter in parameters:
            alike.setdefault((tuple(sorted(self.shape(parameter))), self.sharers(parameter)), []).append(parameter)
        for (shape, (ranks, _)), members in alike.items():
            size = ranks * max(1, STACK_ELEMENTS // math.prod(shape))
            for start in range(0, len(members), size):
                yield members[start : start + size]

    def _buffer(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def orthogonal(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Returns the directions of whole matrices of one shape, or its transpose, rounded to ``entry_dtype`` first."""
    wide = torch.stack([x.T if _is_tall(x) else x for x in matrices])
    directions = orthogonalise(wide.to(entry_dtype(wide.dtype)).to(product_dtype(wide)))
    return [x.T if _is_tall(matrix) else x for matrix, x in zip(matrices, directions, strict=True)]


def entry_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns bf16, whose rounding the iteration forgives; of fp64, in which layouts are compared, fp64."""
    return torch.float64 if dtype == torch.float64 else torch.bfloat16


def product_dtype(wide: Tensor) -> torch.dtype:
    """Returns what the iteration multiplies in: as its entries are, but fp32 on a processor without bf16 products.

    There a bf16 product takes five times as long as one in fp32 (decision 0004).
    """
    entries = entry_dtype(wide.dtype)
    slow = entries is torch.bfloat16 and wide.device.type == "cpu" and not native_bf16()
    return torch.float32 if slow else entries


def orthogonalise(wide: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Nearly the nearest matrices with orthonormal rows: singular values end near 1, directions stay.

    Args:
        wide: matrices with no more rows than columns.
    """
    a, b, c = COEFFICIENTS
    x = wide / wide.norm(dim=(-2, -1), keepdim=True).clamp_min(EPSILON)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _is_tall(matrix: Tensor) -> bool:
    return matrix.shape[0] > matrix.shape[1]
