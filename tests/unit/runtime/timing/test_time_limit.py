"""A training ends while there is time for the step under way, the one after it, and a checkpoint."""

from __future__ import annotations

import time

import pytest

from trainwright.core.errors import RecipeError
from trainwright.runtime.timing.time_limit import TimeLimit, time_limit
from trainwright.spec.sections.train import SLURM_END


class Clock:
    """Goes as far as it is told."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def steps_until_over(limit: TimeLimit, clock: Clock, *, step_s: float) -> float:
    begun_s = clock.now_s
    while True:
        clock.now_s += step_s
        if limit.over():
            return clock.now_s - begun_s


@pytest.mark.parametrize("step_s", [0.5, 1.0, 7.0])
@pytest.mark.parametrize("write_s", [0.5, 10.0])
def test_two_more_steps_and_a_write_fit(step_s, write_s) -> None:
    clock = Clock()
    limit = TimeLimit(100.0, lambda: write_s, clock)
    used_s = steps_until_over(limit, clock, step_s=step_s)
    assert used_s + step_s + write_s < 100.0  # ranks hear of it one step later
    assert used_s + 4 * step_s + 3 * write_s > 100.0  # and little of the time is lost


def test_of_an_unknown_write_a_share_is_kept() -> None:
    clock = Clock()
    assert 87 < steps_until_over(TimeLimit(100.0, lambda: 0.0, clock), clock, step_s=0.1) < 91
    clock = Clock()
    assert 86330 < steps_until_over(TimeLimit(86400.0, lambda: 0.0, clock), clock, step_s=1.0) < 86340


def test_the_earlier_end_counts() -> None:
    assert time_limit(None, 0.0, {}, lambda: 0.0) is None
    late = {SLURM_END: str(time.time() + 3600)}
    for asked_s, environ in (
        (0.0, late),
        (3600.0, {SLURM_END: str(time.time() - 1)}),
        (0.0, {}),
        (None, {SLURM_END: "0"}),
    ):
        limit = time_limit(asked_s, time.monotonic(), environ, lambda: 0.0)
        assert limit is not None and limit.over()
    limit = time_limit(3600.0, time.monotonic(), late, lambda: 0.0)
    assert limit is not None and not limit.over()


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(RecipeError, match="SLURM_JOB_END_TIME: not a time"):
        time_limit(None, 0.0, {SLURM_END: "soon"}, lambda: 0.0)


def test_it_counts_from_the_beginning_whatever_began_again_since() -> None:
    began_s = time.monotonic() - 3000.0
    over, left = (time_limit(asked_s, began_s, {}, lambda: 0.0) for asked_s in (3000.0, 3600.0))
    assert over is not None and over.over()
    assert left is not None and not left.over()
