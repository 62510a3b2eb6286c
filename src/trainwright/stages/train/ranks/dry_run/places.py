"""Counts the places of a pipeline side by side, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from trainwright.launch.parent import end_with_parent

Job = TypeVar("Job")
Result = TypeVar("Result")

MOST_PROCESSES = 8
"""Each has torch, and the tracker's view of one place: about a GiB."""


def side_by_side(
    count: Callable[[Job], Result], jobs: Sequence[Job], tell: Callable[[int, int], None], *, apart: bool
) -> list[Result]:
    """Returns ``[count(job) for job in jobs]``.

    Args:
        count: works on one job; found by its name in another process.
        jobs: what it is given.
        tell: hears how many are done, of how many, as they end.
        apart: in other processes, as far as this machine has cores; else one after the other in this one.
    """
    processes = min(os.cpu_count() or 1, len(jobs), MOST_PROCESSES)
    if not apart or processes == 1:
        results = []
        for job in jobs:
            results.append(count(job))
            tell(len(results), len(jobs))
        return results
    # Spawned: a process that has torch and its threads is not forked.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin)
    others = set(multiprocessing.active_children())
    try:
        futures = [pool.submit(count, job) for job in jobs]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            tell(done, len(jobs))
        return [future.result() for future in futures]
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()  # idle, or at work on what nobody wants any more
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Leaves Ctrl-C and SIGTERM to the parent, and ends with it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
