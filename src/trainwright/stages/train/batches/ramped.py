"""``Ramped``: the sequences of a run, in the order that they always have, in batches that grow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from trainwright.model.tasks.task import Batch, Batches, batch_of
from trainwright.spec.parts.batch_sizes import BatchSizes


@dataclass(frozen=True, slots=True)
class Ramped:
    """Batches of other sizes than those that they are made of; still a function of the step alone.

    Sequences are counted from the start of the run: the first update reads the first ones, and each update those behind
    the ones before it. Where batches are all full that is the n-th sequence of ``batches`` too, so that a run reads the
    same sequences, with the same masks and dropout, in the same order, however its batch grows.

    Args:
        batches: full ones; they are asked for rows.
        sizes: tokens of each update.
        sequence_tokens: of one sequence.
    """

    batches: Batches
    sizes: BatchSizes
    sequence_tokens: int

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """Returns the batch of a step, or these rows of it, as ``Batches``."""
        read = range(self.sizes.at(step) // self.sequence_tokens) if rows is None else rows
        parts = [batch_of(self.batches, number, there) for number, there in self._places(step, read)]
        return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def place(self, step: int, row: int) -> tuple[int, int]:
        """Returns in which full batch a row of a step's batch lies, and which row of that it is."""
        return divmod(self._before(step) + row, self._full)

    @property
    def _full(self) -> int:
        return self.sizes.full // self.sequence_tokens

    def _before(self, step: int) -> int:
        """Returns the sequences of all updates before a step."""
        return self.sizes.tokens(step) // self.sequence_tokens

    def _places(self, step: int, rows: range) -> Iterator[tuple[int, range]]:
        """Yields in which full batches rows of a step's batch lie, and which rows of those they are."""
        done, before, full = rows.start, self._before(step), self._full
        if not rows:  # with more ranks than sequences some have none
            yield before // full, range(0)
        while done < rows.stop:
            number, row = divmod(before + done, full)
            stop = min(full, row + rows.stop - done)
            yield number, range(row, stop)
            done += stop - row
