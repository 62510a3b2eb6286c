"""Who hangs, by what ranks say of themselves."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from trainwright.artifact.events import Events
from trainwright.core.errors import MachineError
from trainwright.runtime.faults.beat import State, stack_of
from trainwright.stages.train.ranks.watch import RankFault, Watch

NOW = 1000.0


@pytest.fixture
def watch(tmp_path) -> Watch:
    events = Events(None, run="x")
    return Watch(folder=tmp_path, stacks=tmp_path, ranks=range(3), hang_after_s=10.0, slow_factor=2.0, events=events)


def state(*, alive: float = 0.0, still: float = 0.0, phase: str = "forward", **said) -> State:
    """A rank that spoke so many seconds ago, and stands still for so many."""
    said = {"steps_here": 5, "step": 5, "collectives": 50} | said
    return State(pid=1, alive_s=NOW - alive, progressed_s=NOW - still, phase=phase, **said)


def test_ranks_that_have_not_spoken_yet_do_not_hang(watch) -> None:
    assert watch.hanging({}, NOW) == []


def test_ranks_that_move_do_not_hang(watch) -> None:
    assert watch.hanging({rank: state(alive=1, still=2) for rank in range(3)}, NOW) == []


def test_a_silent_rank_is_named_before_those_that_wait_for_it(watch) -> None:
    states = {0: state(still=12), 1: state(alive=11, still=11), 2: state(still=12)}
    assert watch.hanging(states, NOW)[0] == 1
    states[1] = state(alive=6, still=11)
    assert watch.hanging(states, NOW)[0] == 1, "half the time is enough where all stand still"


def test_of_ranks_that_stand_still_the_one_behind_is_named(watch) -> None:
    states = {0: state(still=12), 1: state(still=12), 2: state(still=12, collectives=48)}
    assert watch.hanging(states, NOW)[0] == 2


@pytest.mark.parametrize(
    "said", [{"phase": "evaluate"}, {"phase": "checkpoint"}, {"phase": ""}, {"steps_here": 0, "phase": "forward"}]
)
def test_what_takes_long_by_itself_is_no_hang(watch, said) -> None:
    assert watch.hanging({rank: state(still=500, **said) for rank in range(3)}, NOW) == []


def test_one_that_evaluates_is_waited_for(watch) -> None:
    assert watch.hanging({0: state(still=50, phase="evaluate"), 1: state(still=50), 2: state(still=50)}, NOW) == []


def test_phases_that_were_as_long_before_are_no_hang(watch) -> None:
    watch.hanging({rank: state(still=9) for rank in range(3)}, NOW)
    assert watch.hanging({rank: state(still=25) for rank in range(3)}, NOW) == []
    assert watch.hanging({rank: state(still=28) for rank in range(3)}, NOW) != []


def test_who_has_ended_does_not_hang(watch) -> None:
    assert watch.hanging({rank: state(alive=500, still=500, done=True) for rank in range(3)}, NOW) == []


def test_a_rank_that_died_is_named_with_its_place(watch) -> None:
    said = str(watch.died(1, "by SIGKILL", None))
    assert "rank 1 on" in said
    assert "ended by SIGKILL, before its first step; all ranks were ended" in said


@pytest.mark.parametrize(
    ("phase", "place"),
    [
        ("forward", ", last heard in forward of step 6"),
        ("other", ", last heard in step 6"),
        ("evaluate", ", last heard in evaluate after step 5"),
        ("checkpoint", ", last heard in checkpoint after step 5"),
    ],
)
def test_a_place_between_phases_is_that_of_its_step(watch, monkeypatch, phase, place) -> None:
    monkeypatch.setattr(Watch, "states", lambda self: {1: state(phase=phase)})
    assert f"ended by SIGKILL{place}; all ranks were ended" in str(watch.died(1, "by SIGKILL", None))


def on_a_full_disk(*_) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def ended(watch, monkeypatch) -> list[int]:
    """Ranks that the watch ended, of two that live and stand still."""
    monkeypatch.setattr(watch, "states", lambda: {0: state(alive=1e9), 1: state(alive=1e9)})
    monkeypatch.setattr("trainwright.stages.train.ranks.watch._runs", lambda pid: True)
    found: list[int] = []
    monkeypatch.setattr("trainwright.stages.train.ranks.watch._end", found.extend)
    return found


def watched_until(watch, ended: list[int]) -> None:
    with watch.watching():
        deadline_s = time.monotonic() + 20
        while not ended and time.monotonic() < deadline_s:
            time.sleep(0.01)


def test_a_full_disk_is_named_and_no_rank(watch, ended, monkeypatch) -> None:
    monkeypatch.setattr(Path, "write_bytes", on_a_full_disk)
    watched_until(watch, ended)
    assert isinstance(watch.fault, MachineError) and watch.fault.exit_code == 3
    assert str(watch.folder) in str(watch.fault) and "the disk is full" in str(watch.fault)
    assert ended == [0, 1]


def test_who_hangs_is_named_and_ended_where_no_stacks_can_be_kept(watch, ended, tmp_path, monkeypatch) -> None:
    """The training's disk is full, that of temporary files is not."""
    stack = 'Current thread 0x2 (most recent call first):\n  File "/site/c10d.py", line 5 in all_reduce\n'
    for rank in range(2):
        stack_of(tmp_path, rank).write_text(stack)
    monkeypatch.setattr("shutil.copyfile", on_a_full_disk)
    monkeypatch.setattr("trainwright.stages.train.ranks.watch._ask_for_stacks", lambda pid: None)
    watched_until(watch, ended)
    assert isinstance(watch.fault, RankFault)
    said = str(watch.fault)
    assert "all ranks were ended; their stacks were not kept: " in said and "No space left on device" in said
    assert "line 5 in all_reduce" in said
    assert ended == [0, 1]
