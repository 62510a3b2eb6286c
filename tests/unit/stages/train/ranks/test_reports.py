"""What ranks report reaches the starter, and one that is killed in the middle of a report holds up nobody."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event as EventOfProcesses

import pytest

from trainwright.artifact.events import Events
from trainwright.core.errors import DataError, TrainwrightError
from trainwright.spec.event import Event
from trainwright.stages.train.ranks.reports import Reporter, listening

WITHIN_S = 30.0


def event(step: int) -> Event:
    return Event(run="x", t_s=1.0, kind="metric", name="train/loss", value=2.0, step=step)


def reports_forever(pipes: Sequence[Connection], begun: EventOfProcesses) -> None:
    reporter = Reporter(pipes, 0)
    while True:
        reporter.put(event(0))
        begun.set()


def stops_in_the_middle(pipes: Sequence[Connection], begun: EventOfProcesses) -> None:
    Reporter(pipes, 0)
    os.write(pipes[0].fileno(), b"\x00\x00\x10\x00" + b"half of what it says it will")
    begun.set()
    signal.pause()


def says_what_is_wrong(pipes: Sequence[Connection]) -> None:
    Reporter(pipes, 1).put(DataError("a shard is damaged", where="tokens-0"))


def test_events_and_errors_of_ranks_are_told_apart() -> None:
    seen: list[Event] = []
    errors: list[TrainwrightError] = []
    with listening(1, Events(None, run="x", listeners=(seen.append,)), errors) as pipes:
        reporter = Reporter(pipes, 0)
        reporter.put(event(3))
        reporter.put(DataError("a shard is damaged", where="tokens-0"))
        reporter.put(event(4))
    assert seen == [event(3), event(4)]
    assert [str(error) for error in errors] == [str(DataError("a shard is damaged", where="tokens-0"))]


def test_threads_of_a_rank_do_not_mix_their_reports() -> None:
    seen: list[Event] = []
    with listening(1, Events(None, run="x", listeners=(seen.append,)), []) as pipes:
        reporter = Reporter(pipes, 0)
        threads = [
            threading.Thread(target=lambda first=first: [reporter.put(event(first + n)) for n in range(200)])
            for first in (0, 1000, 2000)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(each.step for each in seen) == [first + n for first in (0, 1000, 2000) for n in range(200)]


@pytest.mark.parametrize("victim", [reports_forever, stops_in_the_middle])
def test_a_rank_that_is_killed_while_it_reports_holds_up_nobody(victim) -> None:
    context, errors = multiprocessing.get_context("spawn"), list[TrainwrightError]()
    begun = context.Event()

    def starts() -> None:
        with listening(2, Events(None, run="x"), errors) as pipes:
            killed = context.Process(target=victim, args=(pipes, begun))
            killed.start()
            assert begun.wait(WITHIN_S)
            other = context.Process(target=says_what_is_wrong, args=(pipes,))
            other.start()
            killed.kill()
            killed.join()
            other.join()

    thread = threading.Thread(target=starts, daemon=True)
    thread.start()
    thread.join(4 * WITHIN_S)
    assert not thread.is_alive(), "the starter waits for a rank that is gone"
    assert len(errors) == 1
