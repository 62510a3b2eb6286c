"""Who hears a signal while ranks run; whole commands are in ``tests/system/test_ranks.py``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from trainwright.artifact.events import Events
from trainwright.runtime.faults.beat import State, path_of
from trainwright.stages.train.ranks.signals import Asked
from trainwright.stages.train.ranks.watch import Watch

LISTENS = """
import signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: sys.exit(number))
signal.signal(signal.SIGUSR1, lambda *_: None)
print("spawn_main", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def asked(tmp_path) -> Asked:
    events = Events(None, run="x")
    folder = {"folder": tmp_path, "stacks": tmp_path}
    return Asked(Watch(**folder, ranks=range(2), hang_after_s=9.0, slow_factor=2.0, events=events))


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[str]]]:
    """Two that listen, of whom the watch knows none."""
    command = [sys.executable, "-c", LISTENS, "spawn_main"]
    found = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for each in found:
        assert each.stdout is not None
        assert each.stdout.readline() == "spawn_main\n"
    yield found
    for each in found:
        each.kill()
        each.communicate()


def say_begun(folder: Path, rank: int, pid: int) -> None:
    path_of(folder, rank).write_text(json.dumps(asdict(State(pid=pid, alive_s=0.0, progressed_s=0.0))))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_rank_that_began_hears_the_signal_and_one_that_starts_is_ended(asked, ranks, tmp_path, number) -> None:
    say_begun(tmp_path, 0, ranks[0].pid)
    with asked.passed_on():
        asked.hear(number, None)
        assert [each.wait(timeout=60) for each in ranks] == [number, -signal.SIGKILL]
    assert asked.first is number


def test_a_second_signal_ends_all_ranks_and_the_first_is_remembered(asked, ranks, tmp_path) -> None:
    for rank, each in enumerate(ranks):
        say_begun(tmp_path, rank, each.pid)
    with asked.passed_on():
        asked.hear(signal.SIGUSR1, None)
        assert [each.poll() for each in ranks] == [None, None]
        asked.hear(signal.SIGINT, None)
        assert [each.wait(timeout=60) for each in ranks] == [-signal.SIGKILL] * 2
    assert asked.first is signal.SIGUSR1


def test_without_ranks_a_signal_does_what_it_did_before(asked) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with asked.passed_on():
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]
    assert asked.first is None


def test_signals_are_handled_as_before_once_the_ranks_have_ended(asked) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    with asked.passed_on():
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_what_nohup_ignores_stays_ignored(asked) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with asked.passed_on():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
