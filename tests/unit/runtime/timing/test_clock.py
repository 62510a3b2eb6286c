"""Phases partition the time between start and stop, whatever happens inside."""

from __future__ import annotations

import time

import pytest
import torch

from trainwright.runtime.timing.clock import PhaseClock

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


def test_spans_say_when_each_stretch_was(fake) -> None:
    clock = PhaseClock(CPU)
    clock.start()
    fake.now += 1
    with clock.phase("forward"):
        fake.now += 2
    assert clock.spans() == [("other", 0, 1), ("forward", 1, 3), ("other", 3, 3)]
    fake.now += 4
    assert clock.spans() == [("other", 3, 7)], "what was taken is not told again; the beginning stays"


def test_an_exchange_counts_in_a_step_and_not_in_what_stands_beside_it(fake) -> None:
    clock = PhaseClock(CPU)
    with clock.exchange():
        fake.now += 1
    clock.start()
    with clock.phase("forward"), clock.exchange():
        fake.now += 2
        with clock.exchange():
            fake.now += 4
    with clock.phase("checkpoint"), clock.exchange():
        fake.now += 8
    assert clock.stop().as_dict() == clock_dict(communicate=6.0, checkpoint=8.0)


class FakeStream:
    """A stream whose work takes time that the host does not see."""

    now_ms = 0.0


class FakeEvent:
    """Knows its time only when its stream got there; counts who waits for it."""

    waited = 0

    def __init__(self, device, *, enable_timing) -> None:
        assert enable_timing
        self.device, self.at_ms = device, None

    def record(self, stream) -> None:
        self.at_ms = stream.now_ms

    def synchronize(self) -> None:
        FakeEvent.waited += 1

    def elapsed_time(self, end) -> float:
        return end.at_ms - self.at_ms


def test_on_an_accelerator_marks_lie_in_one_stream_and_are_read_late(monkeypatch) -> None:
    compute, side = FakeStream(), FakeStream()
    current = [compute]
    monkeypatch.setattr(torch, "Event", FakeEvent)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: current[0])
    clock = PhaseClock(torch.device("xpu", 0))
    clock.start()
    with clock.phase("forward"):
        compute.now_ms += 20
        current[0] = side  # a collective is queued in another stream: nobody waits for it
        with clock.exchange():
            side.now_ms += 500
        current[0] = compute
        with clock.exchange():  # the compute stream waits for it
            compute.now_ms += 30
    with clock.phase("backward"):
        compute.now_ms += 40
    assert FakeEvent.waited == 0, "measuring makes nobody wait"
    assert clock.stop().as_dict() == pytest.approx(clock_dict(forward=0.02, communicate=0.03, backward=0.04))
    assert FakeEvent.waited == 1


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
