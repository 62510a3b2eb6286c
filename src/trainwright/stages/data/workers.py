"""How many processes the work on a corpus is worth, and how far its buckets are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

from trainwright.artifact.events import Events
from trainwright.launch.jobs import run_jobs

Input = TypeVar("Input")
Result = TypeVar("Result")


def run_buckets(
    function: Callable[[Input], Result], jobs: Sequence[Input], events: Events, *, workers: int
) -> list[Result]:
    """Returns what becomes of each bucket's texts as tokens, and shows how many buckets are done; as ``run_jobs``."""
    done = count(1)

    def show(_: Input, __: Result) -> None:
        events.progress("data: tokenize", next(done), total=len(jobs), unit="buckets")

    return run_jobs(function, jobs, workers=workers, on_done=show)


def worker_count(asked: Any, work_bytes: int) -> int:
    """Processes worth starting: one per core when ``auto``, but one alone where starting others takes longer.

    A worker takes about half a second to start, and one core cleans or encodes some 30 MB in that time.
    """
    if asked != "auto":
        return int(asked)
    return max(1, min(len(os.sched_getaffinity(0)), work_bytes // (64 << 20)))
