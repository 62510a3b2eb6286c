"""``KeyedBatches``: the batches of a run with a key of each sequence, which decides what dropout leaves of it."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.model.dropout import sample_keys
from trainwright.model.tasks.task import Batch, Batches, batch_of


@dataclass(frozen=True, slots=True)
class KeyedBatches:
    """The batches of a run, each with the keys of its sequences as ``samples``."""

    batches: Batches
    seed: int

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """Returns the batch of a step, or these rows of it, with ``samples`` of shape ``[batch]``."""
        batch = batch_of(self.batches, step, rows)
        here = range(len(next(iter(batch.values())))) if rows is None else rows
        return {**batch, "samples": sample_keys(self.seed, step, here)}
