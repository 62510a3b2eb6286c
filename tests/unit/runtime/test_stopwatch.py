import pytest
import torch

from trainwright.runtime import stopwatch
from trainwright.runtime.stopwatch import MINIMUM_REPETITIONS, Stopwatch


@pytest.fixture
def clock(monkeypatch):
    """A clock that each call moves on by the next of the given seconds."""
    now = [0.0]
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: now[0])

    def spend(seconds):
        now[0] += seconds

    return spend


def test_median_and_quartiles_without_the_warm_up(clock):
    durations = iter([100.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    found = Stopwatch(torch.device("cpu"), budget_s=15.0).time(lambda: clock(next(durations)))
    assert (found.median_s, found.low_s, found.high_s, found.repetitions) == (3.0, 2.0, 4.0, 5)


def test_slow_calls_are_still_repeated_and_fast_ones_not_for_ever(clock):
    watch = Stopwatch(torch.device("cpu"), budget_s=1.0, most=7)
    assert watch.time(lambda: clock(50.0)).repetitions == MINIMUM_REPETITIONS
    assert watch.time(lambda: clock(1e-9)).repetitions == 7


def test_preparation_is_not_timed(clock):
    found = Stopwatch(torch.device("cpu"), budget_s=1.0).time(lambda: clock(1.0), prepare=lambda: clock(60.0))
    assert found.high_s == 1.0


@pytest.mark.cuda
def test_events_time_a_gpu():
    x = torch.randn(2048, 2048, device="cuda")
    assert Stopwatch(torch.device("cuda"), budget_s=0.05).time(lambda: x @ x).median_s > 0
