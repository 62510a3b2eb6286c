"""``PhaseClock``: exactly one phase runs at any time, so that phases partition the step and sum to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainwright.runtime.device import Mark, marker, seconds_between, synchronise
from trainwright.spec.measures import PhaseTimes


class PhaseClock:
    """Times phases of training steps on a device.

    Every moment between ``start`` and ``stop`` belongs to one phase; what no ``with clock.phase(name)`` claims is
    ``other``. Beside a CPU the marks are events in the current stream, read after the work has finished, so that timing
    never makes the host wait for the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._mark = device, marker(device)
        self._running = "other"
        self._since: Mark | None = None
        self._spans: list[tuple[str, Mark, Mark]] = []

    def start(self) -> None:
        """Begin to measure; the running phase is ``other``."""
        self._running, self._since = "other", self._mark()

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

        This waits for the device to reach this point.
        """
        self._switch(self._running)
        synchronise(self._device)
        totals = dict.fromkeys(PhaseTimes.names(), 0.0)
        for name, begin, end in self._spans:
            totals[name] += seconds_between(begin, end)
        self._spans.clear()
        return PhaseTimes(**totals)

    def _switch(self, name: str) -> None:
        now = self._mark()
        if self._since is None:
            raise RuntimeError("the clock was not started")
        self._spans.append((self._running, self._since, now))
        self._running, self._since = name, now
