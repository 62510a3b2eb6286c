"""Batches one step ahead of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from trainwright.model.tasks.task import Batch, Batches, batch_of


def prefetched(
    batches: Batches, first: int, last: int, rows: Callable[[int], range | None], *, pin: bool = False
) -> Iterator[Batch]:
    """Yields the batches of the steps in [first, last), each while the one before is in use.

    ``rows`` says of a step which of its sequences are read, None all. ``pin``: in pinned memory, from which an
    accelerator copies while it computes.
    """

    def made(step: int) -> Batch:
        batch = batch_of(batches, step, rows(step))
        return {name: tensor.pin_memory() for name, tensor in batch.items()} if pin else batch

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        coming = pool.submit(made, first)
        for step in range(first, last):
            ready = coming.result()
            if step + 1 < last:
                coming = pool.submit(made, step + 1)
            yield ready
