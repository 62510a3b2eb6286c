"""Dropout of what adapters multiply: each sees its matrix's input without some elements, the base's product all of it.

Which elements fall follows from whose they are and where they stand, as everywhere (``model.dropout``). What is kept
for the backward pass is the layer's own input, which layers share; masks are made again there.

Shape legend: ``batch`` (sequences), ``seq`` (tokens here), ``inputs``, ``rank``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from trainwright.model.dropout import Draw, dropped

SITES = 1 << 25
"""Added to a layer's number among all linear ones: beyond the sites of what blocks drop (``model.dropout.BRANCH``)."""


class _ProductWithout(torch.autograd.Function):
    """Product of ``x``, without what is dropped, and ``a``; kept are both, and no copy of ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, *where: Any) -> Tensor:
        *tensors, ctx.settings = where
        ctx.save_for_backward(x, a, *tensors)
        return F.linear(dropped(x, where), a)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, a, *tensors = ctx.saved_tensors
        where = (*tensors, ctx.settings)
        of_a = grad.flatten(0, -2).T @ dropped(x, where).flatten(0, -2)
        of_x = dropped(grad @ a, where) if ctx.needs_input_grad[0] else None
        return of_x, of_a, None, None, None


def product_without(
    x: Float[Tensor, "batch seq inputs"], a: Float[Tensor, "rank inputs"], draw: Draw, *, layer: int, rate: float
) -> Float[Tensor, "batch seq rank"]:
    """Returns ``a`` times ``x`` with each element dropped with probability ``rate``, the others over 1 - rate.

    Args:
        x: the input of a linear layer.
        a: the first factor of the adapter beside it, in the dtype of ``x``.
        draw: whose sequences these are, and where their tokens stand.
        layer: the layer's number among all linear ones: each draws its own.
        rate: in [0, 1).
    """
    result: Tensor = _ProductWithout.apply(x, a, draw.samples, draw.places, (SITES + layer, rate, 0))
    return result
