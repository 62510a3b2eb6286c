"""``PassingOver``: the batches of a run without those that rollbacks left out."""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.model.tasks.task import Batch, Batches, batch_of


class PassingOver:
    """Batches in the order of the data, but for some of them; still a function of the step alone."""

    def __init__(self, batches: Batches, passed_over: Iterable[int]) -> None:
        self.batches, self.passed_over = batches, tuple(sorted(passed_over))

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """Returns the batch of a step, as ``Batches``."""
        return batch_of(self.batches, place(step, self.passed_over), rows)


def place(step: int, passed_over: Iterable[int]) -> int:
    """Returns which batch of the whole order of the data a step reads."""
    number = step
    for left_out in sorted(passed_over):
        number += left_out <= number
    return number
