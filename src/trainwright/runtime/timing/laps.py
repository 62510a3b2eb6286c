"""``Laps``: seconds of one thing after another on a device, measured without making the host wait for it."""

from __future__ import annotations

from itertools import pairwise

import torch

from trainwright.runtime.device import Mark, marker, seconds_between, synchronise


class Laps:
    """Seconds between marks: on a CPU by its clock, elsewhere by events in the current stream, which are read late."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._now = marker(device)
        self._marks: list[Mark] = []

    def mark(self) -> None:
        """Begin a lap, and end the one before."""
        self._marks.append(self._now())

    def seconds(self) -> list[float]:
        """Returns the seconds of each lap; waits for the device."""
        synchronise(self._device)
        return [seconds_between(begin, end) for begin, end in pairwise(self._marks)]
