import pytest
import torch

from trainwright.runtime import device
from trainwright.runtime.timing.stopwatch import Stopwatch


@pytest.fixture
def clock(monkeypatch):
    """A clock that each call moves on by the next of the given seconds."""
    now = [0.0]
    monkeypatch.setattr(device.time, "perf_counter", lambda: now[0])

    def spend(seconds):
        now[0] += seconds

    return spend


def test_median_and_quartiles_without_the_warm_up(clock):
    durations = iter([100.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    timing = Stopwatch(torch.device("cpu"), budget_s=15.0).time(lambda: clock(next(durations)))
    assert (timing.fastest_s, timing.low_s, timing.median_s, timing.high_s) == (1.0, 2.0, 3.0, 4.0)
    assert timing.repetitions == 5


def test_slow_calls_are_still_repeated_and_fast_ones_not_for_ever(clock):
    watch = Stopwatch(torch.device("cpu"), budget_s=1.0, most=7)
    assert watch.time(lambda: clock(50.0)).repetitions == 3
    assert watch.time(lambda: clock(1e-9)).repetitions == 7


def test_calls_that_follow_one_another_are_timed_in_turn(clock):
    order = []

    def spend(name, seconds):
        order.append(name)
        clock(seconds)

    watch = Stopwatch(torch.device("cpu"), budget_s=0.0, least=2)
    forward, backward = watch.rounds(lambda: spend("forward", 1.0), lambda: spend("backward", 2.0))
    assert (forward.median_s, backward.median_s) == (1.0, 2.0)
    assert order == ["forward", "backward"] * 3


@pytest.mark.cuda
def test_events_time_a_gpu():
    x = torch.randn(2048, 2048, device="cuda")
    assert Stopwatch(torch.device("cuda"), budget_s=0.05).time(lambda: x @ x).median_s > 0
