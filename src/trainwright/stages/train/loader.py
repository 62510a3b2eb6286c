"""Batches one step ahead of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch

from trainwright.core.registry import load
from trainwright.model.tasks.task import Batch, Batches
from trainwright.runtime.device import ACCELERATORS

_CPU = torch.device("cpu")


def prefetched(
    batches: Batches, first: int, last: int, rows: range | None = None, *, device: torch.device = _CPU
) -> Iterator[Batch]:
    """Yields the batches of the steps in [first, last), or these rows of them, each while the one before is in use.

    They lie where ``device`` can copy them from without stopping the host.
    """
    part = () if rows is None else (rows,)
    make = batches.batch if device.type == "cpu" else _pinned(batches, device)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        coming = pool.submit(make, first, *part)
        for step in range(first, last):
            ready = coming.result()
            if step + 1 < last:
                coming = pool.submit(make, step + 1, *part)
            yield ready


def _pinned(batches: Batches, device: torch.device) -> Callable[..., Batch]:
    pinned = load(f"{ACCELERATORS}:pinned", kind="device")

    def make(step: int, *part: range) -> Batch:
        return {name: pinned(tensor, device) for name, tensor in batches.batch(step, *part).items()}

    return make
