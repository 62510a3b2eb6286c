"""What is kept and what is not, each reason by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from trainwright.planner.evidence.ladder import Measurement
from trainwright.spec.measures import PhaseTimes
from trainwright.spec.plan import Interval
from trainwright.stages.optimize.verdict import loss_difference, verdict, where

GIB = 2.0**30
BEFORE = Measurement(
    step_s=(2.0,) * 20,
    losses=(10.0, 9.0, 8.0),
    step_tokens=1024,
    memory_bytes=4 * GIB,
    start_s=1.0,
    phases=PhaseTimes(forward=0.6, backward=1.0, update=0.4),
)
FASTER = replace(BEFORE, step_s=(1.6,) * 20, phases=PhaseTimes(forward=0.6, backward=0.995, update=0.005))
SURE, UNSURE, SLOWER = (
    Interval(low=low, mid=mid, high=high) for low, mid, high in ((1.2, 1.25, 1.3), (0.98, 1.01, 1.04), (0.7, 0.75, 0.8))
)


def judged(with_it=FASTER, gain=SURE, **changes):
    options = {
        "difference": 1e-6,
        "tolerance": 1e-3,
        "run_steps": 1000,
        "of_memory": False,
        "available_bytes": 16 * GIB,
    }
    return verdict(changes.pop("before", BEFORE), with_it, gain, **(options | changes))


def test_a_gain_whose_interval_excludes_one_is_kept_and_says_where_it_came_from() -> None:
    kept, reason = judged()
    assert kept and reason == "update 400 ms to 5 ms"


@pytest.mark.parametrize(("gain", "reason"), [(UNSURE, "no difference that 20 updates show"), (SLOWER, "slower")])
def test_what_may_be_nothing_or_a_loss_is_not_kept(gain, reason) -> None:
    assert judged(gain=gain) == (False, reason)
    assert not judged(gain=replace(gain, low=1.0, mid=1.2, high=1.3))[0], "1 itself is not excluded"


def test_another_loss_than_rounding_makes_is_not_kept_however_fast() -> None:
    kept, reason = judged(difference=2e-3)
    assert not kept and "differs by 2.0e-03, more than the 1e-03" in reason
    assert not judged(difference=math.inf)[0]


def test_start_up_has_to_be_paid_back_within_the_run() -> None:
    compiled = replace(FASTER, start_s=40.9)
    assert judged(compiled, run_steps=100)[0]
    kept, reason = judged(compiled, run_steps=99)
    assert not kept and reason == "39.9 s of start-up are paid back after 100 updates of 99"


def test_a_means_against_scarce_memory_is_kept_where_memory_is_scarce() -> None:
    less = replace(BEFORE, step_s=(2.6,) * 20, memory_bytes=2 * GIB)
    kept, reason = judged(less, SLOWER, of_memory=True)
    assert not kept and reason == "slower; peak memory 4 GiB to 2 GiB, and 16 GiB are there"
    kept, reason = judged(less, SLOWER, of_memory=True, available_bytes=4.2 * GIB)
    assert kept and reason.startswith("memory is short: peak memory 4 GiB to 2 GiB of 4.2 GiB")
    assert not judged(less, SLOWER, available_bytes=4.2 * GIB)[0], "another technique is no means against it"
    more = replace(less, memory_bytes=5 * GIB)
    assert not judged(more, SLOWER, of_memory=True, available_bytes=4.2 * GIB)[0]


def test_the_difference_is_that_of_the_worst_update() -> None:
    assert loss_difference(BEFORE, replace(BEFORE, losses=(10.0, 9.9, 8.0))) == pytest.approx(0.1)
    assert loss_difference(BEFORE, BEFORE) == 0
    for broken in (math.nan, math.inf):
        assert loss_difference(BEFORE, replace(BEFORE, losses=(10.0, broken, 8.0))) == math.inf
        assert loss_difference(replace(BEFORE, losses=(10.0, broken, 8.0)), BEFORE) == math.inf


def test_phases_that_changed_little_are_not_named() -> None:
    assert where(BEFORE, BEFORE) == "no phase stands out"
    longer = replace(BEFORE, phases=PhaseTimes(forward=0.9, backward=0.9, update=0.4))
    assert where(BEFORE, longer) == "forward 600 ms to 900 ms, backward 1 s to 900 ms"
