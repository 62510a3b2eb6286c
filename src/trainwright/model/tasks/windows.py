"""Batches of token windows in a counter-based random order; the whole state is the step number.

Shape legend: ``batch`` (sequences), ``seq`` (tokens of one sequence).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trainwright.artifact.shards import TokenSplit
from trainwright.core.errors import DataError
from trainwright.runtime.rng import derive, permute
from trainwright.spec.workload import windows_per_epoch


class Windows:
    """Every batch of a run as a function of its step.

    Each epoch cuts the split into windows of ``sequence_tokens`` from an offset of its own and visits them in a
    pseudo-random order of its own; a window carries one token more, the last target.

    Raises:
        DataError: the split is shorter than one sequence.
    """

    def __init__(self, split: TokenSplit, *, sequence_tokens: int, batch_sequences: int, seed: int) -> None:
        if split.tokens <= sequence_tokens:
            raise DataError(
                "the {name} split is shorter than one sequence",
                seen=f"{split.tokens} tokens",
                expected=f"at least {sequence_tokens + 1}",
                fix="give more data, or lower train.sequence_tokens",
                name=split.name,
            )
        self.split = split
        self.sequence_tokens = sequence_tokens
        self.batch_sequences = batch_sequences
        self.seed = seed
        self.windows_per_epoch = windows_per_epoch(split.tokens, sequence_tokens)

    def starts(self, step: int, rows: range | None = None) -> list[int]:
        """First token of each sequence of a step's batch, or of those in ``rows``."""
        read = np.asarray(range(self.batch_sequences) if rows is None else rows, np.int64)
        samples = step * self.batch_sequences + read
        epochs, ranks = np.divmod(samples, self.windows_per_epoch)
        starts = np.empty_like(samples)
        slack = self.split.tokens - 1 - self.windows_per_epoch * self.sequence_tokens
        for epoch in np.unique(epochs):
            here = epochs == epoch
            key = derive(self.seed, int(epoch))
            order = permute(ranks[here], self.windows_per_epoch, key)
            starts[here] = order * self.sequence_tokens + derive(key, 0) % (slack + 1)
        return [int(start) for start in starts]

    def batch(self, step: int, rows: range | None = None) -> dict[str, Tensor]:
        """Returns ``tokens`` of shape ``[batch, seq + 1]``: all but the last are inputs, all but the first targets."""
        span = self.sequence_tokens + 1
        read = [self.split.read(start, start + span) for start in self.starts(step, rows)]
        tokens = np.stack(read) if read else np.empty((0, span))  # with more ranks than sequences some have none
        return {"tokens": torch.from_numpy(tokens.astype(np.int64))}
