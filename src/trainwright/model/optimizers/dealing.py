"""Whole matrices dealt over the ranks that keep their rows: each gets some of them whole, and gives their rows back.

One exchange of all ranks with all sends every element once, where gathering sends it to each rank, and every rank works
on its own matrices alone (Liu et al., 2025, arXiv 2502.16982, section 2.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Deal:
    """Matrices whose rows lie on the ranks of a group, in order; they are dealt to one rank after another.

    Attributes:
        group: the ranks.
        shapes: of the whole matrices, (rows, columns), in an order that all ranks have.
        first: the rank that is dealt the first matrix.
    """

    group: ProcessGroup
    shapes: Sequence[tuple[int, int]]
    first: int = 0

    def whole(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Returns the matrices that this rank is dealt, from its rows of all; all ranks call it together."""
        received = self._exchanged(
            [[parts[i] for i in self.of(rank)] for rank in self._ranks],
            [[self._rows(i, rank) for i in self.of(self.group.rank())] for rank in self._ranks],
            like=parts[0],
        )
        return [torch.cat(rows) for rows in zip(*received, strict=True)]

    def parts(self, whole: Sequence[Tensor], *, like: Tensor) -> list[Tensor]:
        """Returns this rank's rows of all matrices, from those that it was dealt; all ranks call it together.

        Args:
            whole: in the order of ``Deal.whole``.
            like: has the dtype and device of what is sent, also on a rank that was dealt none.
        """
        own = self.of(self.group.rank())
        cut = [
            matrix.split([self._rows(i, rank)[0] for rank in self._ranks]) for i, matrix in zip(own, whole, strict=True)
        ]
        received = self._exchanged(
            [[rows[rank] for rows in cut] for rank in self._ranks],
            [[self._rows(i, self.group.rank()) for i in self.of(rank)] for rank in self._ranks],
            like=like,
        )
        found = {i: part for rank in self._ranks for i, part in zip(self.of(rank), received[rank], strict=True)}
        return [found[i] for i in range(len(self.shapes))]

    def of(self, rank: int) -> range:
        """Returns which matrices a rank is dealt."""
        return hand(rank, self.group.size(), first=self.first, matrices=len(self.shapes))

    @property
    def _ranks(self) -> range:
        return range(self.group.size())

    def _rows(self, matrix: int, rank: int) -> tuple[int, int]:
        """Returns the shape of a rank's part."""
        rows, columns = self.shapes[matrix]
        return rows_of(rank, self.group.size(), rows=rows), columns

    def _exchanged(
        self, sent: Sequence[Sequence[Tensor]], shapes: Sequence[Sequence[tuple[int, int]]], *, like: Tensor
    ) -> list[list[Tensor]]:
        """Returns tensors of these shapes from each rank, for those that each is sent."""
        there = [sum(tensor.numel() for tensor in tensors) for tensors in sent]
        back = [sum(rows * columns for rows, columns in each) for each in shapes]
        lines = [tensor.reshape(-1) for tensors in sent for tensor in tensors]
        received = like.new_empty(sum(back))
        dist.all_to_all_single(
            received, torch.cat(lines) if lines else like.new_empty(0), back, there, group=self.group
        )
        return [_in_shapes(line, each) for line, each in zip(received.split(back), shapes, strict=True)]


def hand(rank: int, ranks: int, *, first: int, matrices: int) -> range:
    """Returns which of some matrices a rank is dealt, of which rank ``first`` is dealt the first."""
    return range((rank - first) % ranks, matrices, ranks)


def rows_of(rank: int, ranks: int, *, rows: int) -> int:
    """Returns how many rows a rank keeps: as many as the others, and the last that has any what is left (FSDP2)."""
    most = -(-rows // ranks)
    return min(most, max(0, rows - rank * most))


def _in_shapes(line: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    ends = accumulate((rows * columns for rows, columns in shapes), initial=0)
    return [line[start:end].view(shape) for shape, (start, end) in zip(shapes, pairwise(ends), strict=True)]


def group_of_rows(parameter: Tensor) -> ProcessGroup | None:
    """Returns the ranks that keep rows of a matrix, or of this rank's part along ``tp``; None where one has all.

    FSDP cuts the first dim over one axis of its mesh, and copies over another.
    """
    if not isinstance(parameter, DTensor):
        return None
    (axis,) = (axis for axis, placement in enumerate(parameter.placements) if placement.is_shard(0))
    return parameter.device_mesh.get_group(axis) if parameter.device_mesh.size(axis) > 1 else None
