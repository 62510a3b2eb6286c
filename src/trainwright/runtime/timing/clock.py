"""``PhaseClock``: exactly one phase runs at any time, so that phases partition the step and sum to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from trainwright.runtime.device import Mark, marker, passed, seconds_between
from trainwright.spec.measures import BESIDE_STEPS, PhaseTimes

Position = tuple[int, str, object]
"""Where training stands: updates made, the phase, and something that changes with each phase."""


class Span(NamedTuple):
    """A stretch of one phase, in seconds since the clock was started."""

    phase: str
    begin_s: float
    end_s: float


class PhaseClock:
    """Times phases of training steps on a device.

    Every moment between ``start`` and ``stop`` belongs to one phase; what no ``with clock.phase(name)`` claims is
    ``other``. Beside a CPU the marks are events in the stream that was current at the start, whatever stream is used
    meanwhile, and are read after the work has finished, so that timing never makes the host wait for the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._mark: Callable[[], Mark] = marker(device)
        self._running = "other"
        self._began: Mark = 0.0
        self._since: Mark | None = None
        self._spans: list[tuple[str, Mark, Mark]] = []

    def start(self) -> None:
        """Begin to measure; the running phase is ``other``."""
        self._mark = marker(self._device)
        self._spans.clear()
        self._running, self._began = "other", self._mark()
        self._since = self._began

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

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Count what is waited for as ``communicate``, unless it belongs to what stands beside the steps."""
        if self._since is None or self._running == "communicate" or self._running in BESIDE_STEPS:
            yield
            return
        with self.phase("communicate"):
            yield

    def stop(self) -> PhaseTimes:
        """Returns seconds of every phase since ``start`` or the last ``stop``; measuring goes on.

        This waits for the device's stream to reach this point.
        """
        totals = dict.fromkeys(PhaseTimes.names(), 0.0)
        for name, begin, end in self._taken():
            totals[name] += seconds_between(begin, end)
        return PhaseTimes(**totals)

    def spans(self) -> list[Span]:
        """Returns each stretch since ``start`` or the last ``stop``, in order; measuring goes on."""
        began = self._began
        return [
            Span(name, seconds_between(began, begin), seconds_between(began, end)) for name, begin, end in self._taken()
        ]

    def _taken(self) -> list[tuple[str, Mark, Mark]]:
        self._switch(self._running)
        assert self._since is not None
        passed(self._since, self._device)
        spans, self._spans = self._spans, []
        return spans

    def _switch(self, name: str) -> None:
        now = self._mark()
        if self._since is None:
            raise RuntimeError("the clock was not started")
        self._spans.append((self._running, self._since, now))
        self._running, self._since = name, now
