"""Products of rows with the matrix of their group: rows lie sorted by expert, and every row has its product.

Shape legend: ``rows`` (copies of tokens, sorted by expert), ``inputs``, ``outputs``, ``experts``, ``tokens``,
``active`` (experts of one token), ``width``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor  # torch has no public name for it

_ALIGNED_BYTES = 16
"""Of a row in torch's grouped product: it reads matrices in pieces of so many bytes."""


class ExpertLinear(nn.Module):
    """``x @ weight[e].T + bias[e]`` for the expert ``e`` of each row; ``weight`` is (experts, out, in)."""

    def __init__(self, experts: int, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(experts, outputs)) if bias else None

    def forward(
        self, x: Float[Tensor, "rows inputs"], counts: Int[Tensor, " experts"]
    ) -> Float[Tensor, "rows outputs"]:
        """Project each row by its expert, in the dtype of ``x``; ``counts`` are the rows of each expert, in order."""
        weight = self.weight.to(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if not groups_products(x, outputs=weight.shape[1]):
            return _in_turn(x, weight, bias, counts)
        ends = counts.cumsum(0, dtype=torch.int32)
        y: Tensor = F.grouped_mm(x, weight.transpose(1, 2), offs=ends)
        if bias is None:
            return y
        return y + bias[torch.repeat_interleave(counts, output_size=x.shape[0])]


def groups_products(x: Tensor, *, outputs: int) -> bool:
    """Returns whether torch multiplies all groups in one kernel here, without asking the device how large they are.

    It does on CUDA, in bf16, where rows of both matrices are multiples of 16 bytes; a processor takes them in turn
    whatever is asked, and so that no row of zero is lost, it is done here.
    """
    aligned = all(size * x.element_size() % _ALIGNED_BYTES == 0 for size in (x.shape[1], outputs))
    return x.device.type == "cuda" and x.dtype is torch.bfloat16 and aligned and x.shape[0] > 0


def has_no_values(x: Tensor) -> bool:
    """Returns whether a tensor stands for others of its shape: on the device ``meta``, or in a dry run."""
    return x.is_meta or isinstance(x, FakeTensor)


@torch.compiler.disable  # the sizes of groups are numbers of this very batch
def _in_turn(x: Tensor, weight: Tensor, bias: Tensor | None, counts: Tensor) -> Tensor:
    # Without values all rows are the first expert's: whoever has them, they are as many operations.
    sizes = [x.shape[0], *[0] * (len(weight) - 1)] if has_no_values(x) else counts.tolist()
    y: Tensor = _InTurn.apply(x, weight, bias, sizes)
    return y


class _InTurn(torch.autograd.Function):
    """One product for each expert that has rows, written where it belongs, so that nothing is joined afterwards.

    The gradient of an expert without rows is zero, not absent: ranks that add gradients up find one of each.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, counts: list[int]) -> Tensor:
        y = x.new_empty(x.shape[0], weight.shape[1])
        for expert, rows in _groups(counts):
            torch.mm(x[rows], weight[expert].T, out=y[rows])
            if bias is not None:
                y[rows] += bias[expert]
        ctx.save_for_backward(x, weight)
        ctx.counts, ctx.biased = counts, bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        of_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        of_bias = weight.new_zeros(weight.shape[:2]) if ctx.biased and ctx.needs_input_grad[2] else None
        for expert, rows in _groups(ctx.counts):
            if of_x is not None:
                torch.mm(grad[rows], weight[expert], out=of_x[rows])
            if of_weight is not None:
                torch.mm(grad[rows].T, x[rows], out=of_weight[expert])
            if of_bias is not None:
                torch.sum(grad[rows], dim=0, out=of_bias[expert])
        return of_x, of_weight, of_bias, None


def _groups(counts: list[int]) -> list[tuple[int, slice]]:
    """Returns the experts that have rows, with where these lie."""
    groups, start = [], 0
    for expert, count in enumerate(counts):
        if count:
            groups.append((expert, slice(start, start + count)))
        start += count
    return groups


class _Copied(torch.autograd.Function):
    """Rows of tokens in another order, each token ``active`` times; the gradient adds a token's copies up in order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, places: Tensor, active: int) -> Tensor:
        ctx.save_for_backward(places)
        ctx.active = active
        return x[order // active]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (places,) = ctx.saved_tensors
        return grads[0][places].unflatten(0, (-1, ctx.active)).sum(1), None, None, None


def copied(
    x: Float[Tensor, "tokens width"], order: Int[Tensor, " rows"], places: Int[Tensor, " rows"], *, active: int
) -> Float[Tensor, "rows width"]:
    """Returns a copy of each token for each of its experts, in an order of (token, choice) pairs.

    No two threads ever add to one number, so that gradients are the same bits in every run.

    Args:
        x: the tokens.
        order: which pair, ``token * active + choice``, stands in each row.
        places: in which row each pair stands, the inverse.
        active: choices of each token.
    """
    rows: Tensor = _Copied.apply(x, order, places, active)
    return rows


class _Reordered(torch.autograd.Function):
    """Rows in another order; the gradient goes the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x[places]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (order,) = ctx.saved_tensors
        return grads[0][order], None, None


def returned(
    rows: Float[Tensor, "rows width"], order: Int[Tensor, " rows"], places: Int[Tensor, " rows"], *, active: int
) -> Float[Tensor, "tokens active width"]:
    """Returns each token's results side by side: what ``copied`` took apart, with the same ``order`` and ``places``."""
    return reordered(rows, places, order).unflatten(0, (-1, active))


def reordered(
    rows: Float[Tensor, "rows width"], places: Int[Tensor, " rows"], inverse: Int[Tensor, " rows"]
) -> Float[Tensor, "rows width"]:
    """Returns ``rows[places]``, each of which stands once; the gradient goes the way back, by the inverse."""
    found: Tensor = _Reordered.apply(rows, places, inverse)
    return found
