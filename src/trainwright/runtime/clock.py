"""``PhaseClock``: exactly one phase runs at any time, so that phases partition the step and sum to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainwright.spec.measures import PhaseTimes

_Mark = float | torch.cuda.Event


class PhaseClock:
    """Times phases of training steps on a CPU or a CUDA device.

    Every moment between ``start`` and ``stop`` belongs to one phase; what no ``with clock.phase(name)`` claims is
    ``other``. On CUDA the marks are events in the current stream, read after the work has finished, so that timing
    never makes the host wait for the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._running = "other"
        self._since: _Mark | None = None
        self._spans: list[tuple[str, _Mark, _Mark]] = []

    def start(self) -> None:
        """Begin to measure; the running phase is ``other``."""
        self._running, self._since = "other", self._mark()

    @property
    def running(self) -> tuple[str, object]:
        """Returns the phase that runs, and something that changes when another one begins."""
        return self._running, self._since

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Run one phase; the phase that was running goes on afterwards."""
        before = self._running
        self._switch(name)
        try:
            yield
        finally:
            self._switch(before)

    def stop(self) -> PhaseTimes:
        """Returns seconds of every phase since ``start`` or the last ``stop``; measuring goes on.

        On CUDA this waits for the device to reach this point.
        """
        self._switch(self._running)
        if self._cuda:
            torch.cuda.synchronize()
        totals = dict.fromkeys(PhaseTimes.names(), 0.0)
        for name, begin, end in self._spans:
            totals[name] += _seconds(begin, end)
        self._spans.clear()
        return PhaseTimes(**totals)

    def _switch(self, name: str) -> None:
        now = self._mark()
        if self._since is None:
            raise RuntimeError("the clock was not started")
        self._spans.append((self._running, self._since, now))
        self._running, self._since = name, now

    def _mark(self) -> _Mark:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _seconds(begin: _Mark, end: _Mark) -> float:
    if isinstance(begin, float) and isinstance(end, float):
        return end - begin
    assert isinstance(begin, torch.cuda.Event)
    assert isinstance(end, torch.cuda.Event)
    return float(begin.elapsed_time(end)) / 1e3
