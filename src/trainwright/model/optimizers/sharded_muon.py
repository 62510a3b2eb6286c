"""Muon over matrices that several ranks share: each keeps its part, and finds the directions of some whole matrices."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import torch
from torch import Tensor

from trainwright.model.muon import Muon, entry_dtype, orthogonal, product_dtype
from trainwright.model.optimizers.dealing import Deal, group_of_rows
from trainwright.runtime.collectives import gathered
from trainwright.runtime.cuts import cut_of, whole_shape
from trainwright.runtime.norms import local


class ShardedMuon(Muon):
    """Muon whose momentum lies where its matrix does; whole matrices are dealt over the ranks that share them.

    They are sent in the dtype of the iteration's entries: rounding to it is done element by element before the
    iteration in any case, so that it changes no bit. Directions come back in the dtype of its products.
    """

    def shape(self, parameter: Tensor) -> torch.Size:
        """Returns the shape of a whole matrix."""
        return whole_shape(parameter)

    def local(self, tensors: list[Tensor]) -> list[Tensor]:
        """Returns this rank's part of each tensor."""
        return [local(tensor) for tensor in tensors]

    def sharers(self, parameter: Tensor) -> tuple[int, Hashable]:
        """Returns how many ranks a matrix's stack is dealt over, and which they are."""
        rows, cut = group_of_rows(parameter), cut_of(parameter)
        of_rows = (1, "") if rows is None else (rows.size(), rows.group_name)
        of_cuts = (1, "") if cut is None else (len(cut.parts), cut.group.group_name)
        return of_rows[0] * of_cuts[0], (of_rows[1], of_cuts[1])

    def _stacks(self, parameters: list[Tensor]) -> Iterator[list[Tensor]]:
        """Yields as ``Muon``; where one stack's deal ends, the next one's begins."""
        self._dealt = 0
        for stack in super()._stacks(parameters):
            yield stack
            self._dealt += len(stack)

    def directions(self, stack: list[Tensor], ahead: Sequence[Tensor]) -> list[Tensor]:
        """Returns this rank's part of each direction; all ranks must ask for the same matrices."""
        parts = [part.to(entry_dtype(part.dtype)) for part in ahead]
        rows = group_of_rows(stack[0])
        if rows is None:
            return _along_cuts(stack, parts, first=self._dealt)
        shapes = [(matrix.shape[0], matrix.shape[1]) for matrix in stack]
        deal = Deal(group=rows, shapes=shapes, first=self._dealt % rows.size())
        own, like = [stack[i] for i in deal.of(rows.rank())], parts[0].new_empty(0, dtype=product_dtype(parts[0]))
        whole = deal.whole(parts)
        del parts  # as large as what was dealt
        return deal.parts(_along_cuts(own, whole, first=self._dealt // rows.size()), like=like)


def _along_cuts(stack: Sequence[Tensor], parts: Sequence[Tensor], *, first: int) -> list[Tensor]:
    """Returns what this rank along ``tp`` has of each direction, from what it has of each matrix.

    All gather each matrix, one of them finds its direction, and shows it to the others: rank ``first`` the first one's.
    """
    cuts = [cut for cut in map(cut_of, stack) if cut is not None]
    if not cuts:
        return orthogonal(parts) if parts else []
    ranks = len(cuts[0].parts)
    own: dict[int, Tensor] = {}
    for place, (cut, part) in enumerate(zip(cuts, parts, strict=True)):
        whole = cut.gather(part)
        if (first + place) % ranks == cut.rank:
            own[place] = whole
    found = dict(zip(own, orthogonal(list(own.values())), strict=True)) if own else {}
    shown: list[Tensor] = []
    for turn in range(0, len(cuts), ranks):
        mine = found.get(turn + (cuts[0].rank - first) % ranks)
        if mine is None:  # the last turn is not everyone's
            mine = parts[0].new_zeros(cuts[0].whole, dtype=product_dtype(parts[0]))
        lines = gathered(mine.reshape(-1), ranks, cuts[0].group.group_name).chunk(ranks)
        places = range(turn, min(turn + ranks, len(cuts)))
        shown += [cuts[place].take(lines[(first + place) % ranks].view(cuts[place].whole)) for place in places]
    return shown
