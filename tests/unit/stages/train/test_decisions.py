from __future__ import annotations

import pytest

from trainwright.stages.train.decisions import Decisions, decide


@pytest.fixture
def after(make_recipe):
    """``after(done, ...)``: validation every 4 steps, a log line every 3, a checkpoint every 60 s, 10 steps."""
    section = make_recipe(exec_checkpoint_every=60.0, exec_log_every_steps=3).train

    def made(done: int, *, since: float = 0.0, signal: str | None = None, section=section) -> Decisions:
        return decide(section, done=done, steps=10, since_checkpoint_s=since, cause=signal)

    return made


def test_each_thing_is_done_at_its_cadence(after) -> None:
    assert [done for done in range(1, 11) if after(done).validate] == [4, 8, 10]
    assert [done for done in range(1, 11) if after(done).report] == [3, 4, 6, 8, 9, 10]
    assert [done for done in range(1, 11) if after(done).checkpoint] == [10]
    assert [done for done in range(1, 11) if after(done).last] == [10]


def test_a_checkpoint_is_due_by_the_clock_and_is_reported(after) -> None:
    assert not after(1, since=59.9).checkpoint
    due = after(1, since=60.0)
    assert due.checkpoint and due.report and not due.wait and not due.validate


def test_without_a_period_the_last_checkpoint_is_the_only_one(after, make_recipe) -> None:
    section = make_recipe(exec_checkpoint_every=0).train
    assert not after(9, since=1e9, section=section).checkpoint
    assert after(10, section=section).checkpoint


def test_a_signal_saves_waits_and_ends_the_run(after) -> None:
    stopped = after(5, signal="SIGTERM")
    assert (stopped.stop, stopped.checkpoint, stopped.report, stopped.wait) == ("SIGTERM", True, True, True)
    assert not stopped.validate


def test_a_signal_in_the_last_step_stops_nothing(after) -> None:
    assert after(10, signal="SIGINT") == after(10)
    assert after(10).wait and after(10).stop is None
