"""Collectives as functions of tensors, which may stand inside compiled code; of nothing they send nothing.

The operations are torch's own, below the names in Python that change from one of its versions to the next.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_OPS: Any = torch.ops._c10d_functional  # noqa: SLF001  # torch's own name


def unmoved(x: Tensor, *shape: int) -> Tensor:
    """Returns the same memory in another shape, and to autograd no view: FSDP warns of a view that is returned."""
    same: Tensor = torch.ops.aten._unsafe_view.default(x, shape)  # noqa: SLF001  # torch's own name
    return same


def gathered(part: Tensor, ranks: int, group: str, dim: int = 0) -> Tensor:
    """Returns the parts of all ranks, one after another along a dim; all have the same shape."""
    if not part.numel():
        shape = list(part.shape)
        shape[dim] *= ranks
        return part.new_empty(shape)
    whole: Tensor = _OPS.wait_tensor(_OPS.all_gather_into_tensor(part.contiguous(), ranks, group))
    if dim == 1 and part.shape[0] == 1:
        return unmoved(whole, 1, -1, *part.shape[2:])  # of one sequence the parts lie in order already
    return whole if dim == 0 else torch.cat(whole.chunk(ranks), dim)


def scattered(whole: Tensor, ranks: int, group: str, dim: int = 0) -> Tensor:
    """Returns this rank's part, along a dim, of the sum over all ranks."""
    if not whole.numel():
        shape = list(whole.shape)
        shape[dim] //= ranks
        return whole.new_empty(shape)
    if dim == 1 and whole.shape[0] == 1:
        lines = whole.contiguous().view(ranks, -1, *whole.shape[2:])
    else:
        lines = whole.contiguous() if dim == 0 else torch.cat(whole.chunk(ranks, dim))
    part: Tensor = _OPS.wait_tensor(_OPS.reduce_scatter_tensor(lines, "sum", ranks, group))
    return part


def added(value: Tensor, group: str, how: str = "sum") -> Tensor:
    """Returns the sum over all ranks (or ``max``), the same bits on all of them."""
    if not value.numel():
        return value
    total: Tensor = _OPS.wait_tensor(_OPS.all_reduce(value.contiguous(), how, group))
    return total
