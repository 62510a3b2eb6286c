"""Phases partition the time between start and stop, whatever happens inside."""

from __future__ import annotations

import time

import pytest
import torch

from trainwright.runtime.clock import PhaseClock

CPU = torch.device("cpu")


class FakeTime:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def fail_after(self, seconds: float) -> None:
        self.now += seconds
        raise ValueError("an error of the phase")

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def fake(monkeypatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr("trainwright.runtime.device.time", clock)
    return clock


def test_every_moment_belongs_to_the_innermost_phase(fake) -> None:
    clock = PhaseClock(CPU)
    clock.start()
    fake.now += 1
    with clock.phase("forward"):
        fake.now += 2
        with clock.phase("preprocess"):
            fake.now += 4
        fake.now += 8
    fake.now += 16
    times = clock.stop()
    assert (times.other, times.forward, times.preprocess) == (17.0, 10.0, 4.0)
    assert times.total_s == 31.0


def test_an_error_ends_its_phase_and_measuring_goes_on(fake) -> None:
    clock = PhaseClock(CPU)
    clock.start()
    with pytest.raises(ValueError, match="of the phase"), clock.phase("backward"):
        fake.fail_after(3)
    fake.now += 1
    assert clock.stop().as_dict() | {"backward": 3.0, "other": 1.0} == clock_dict(backward=3.0, other=1.0)
    fake.now += 5
    assert clock.stop().total_s == 5.0, "what was reported is not reported again"


def clock_dict(**parts: float) -> dict[str, float]:
    from trainwright.spec.measures import PhaseTimes

    return PhaseTimes(**parts).as_dict()


def test_an_unknown_phase_and_a_clock_that_was_not_started_are_our_mistakes() -> None:
    clock = PhaseClock(CPU)
    with pytest.raises(RuntimeError):
        clock.stop()
    clock.start()
    with clock.phase("lunch"):
        pass
    with pytest.raises(KeyError):
        clock.stop()


def test_real_time_is_covered_without_a_gap() -> None:
    clock = PhaseClock(CPU)
    begin = time.perf_counter()
    clock.start()
    for _ in range(200):
        with clock.phase("forward"):
            torch.ones(10).sum()
    times = clock.stop()
    assert 0 < times.forward <= times.total_s <= time.perf_counter() - begin


@pytest.mark.cuda
def test_on_cuda_a_phase_lasts_as_long_as_its_kernels() -> None:
    device = torch.device("cuda")
    clock = PhaseClock(device)
    a = torch.randn(4096, 4096, device=device)
    torch.cuda.synchronize()
    clock.start()
    with clock.phase("forward"):
        for _ in range(20):
            a = a @ a
    with clock.phase("update"):
        pass
    times = clock.stop()
    assert times.forward > 10 * times.update
