"""The order in which documents of a split are learnt: each once an epoch, in an order of that epoch's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainwright.runtime.rng import derive, permute


def drawn(
    step: int, rows: range, *, batch: int, documents: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns of some rows of a step's batch the epoch and the document: both a function of seed, step and row.

    Args:
        step: counted from 0.
        rows: of the batch.
        batch: documents of a whole batch.
        documents: of the split.
        seed: of the run.
    """
    samples = step * batch + np.asarray(rows, np.int64)
    epochs, ranks = np.divmod(samples, documents)
    order = np.empty_like(samples)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        order[here] = permute(ranks[here], documents, derive(seed, int(epoch)))
    return epochs, order
