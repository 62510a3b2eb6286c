"""How many processes are worth starting, and how far buckets are."""

from __future__ import annotations

import os

import pytest

from trainwright.artifact.events import Events
from trainwright.stages.data.workers import run_buckets, worker_count


@pytest.mark.parametrize(
    ("asked", "work_bytes", "expected"), [(3, 0, 3), ("auto", 31_000_000, 1), ("auto", 1 << 50, None)]
)
def test_few_bytes_are_not_worth_a_process(asked, work_bytes, expected):
    assert worker_count(asked, work_bytes) == (expected or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("workers", [1, 2])
def test_buckets_are_counted_as_they_end(workers) -> None:
    told = []
    with Events(None, run="r", listeners=(told.append,)) as events:
        assert run_buckets(abs, [-3, 2, -1], events, workers=workers) == [3, 2, 1]
    assert [(each.name, each.value, each.total) for each in told] == [("data: tokenize", n, 3) for n in (1, 2, 3)]
