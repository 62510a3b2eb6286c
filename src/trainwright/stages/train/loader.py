"""Batches one step ahead of training."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from trainwright.model.tasks.task import Batch, Batches


def prefetched(batches: Batches, first: int, last: int, rows: range | None = None) -> Iterator[Batch]:
    """Yields the batches of the steps in [first, last), or these rows of them, each while the one before is in use."""
    part = () if rows is None else (rows,)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        coming = pool.submit(batches.batch, first, *part)
        for step in range(first, last):
            ready = coming.result()
            if step + 1 < last:
                coming = pool.submit(batches.batch, step + 1, *part)
            yield ready
