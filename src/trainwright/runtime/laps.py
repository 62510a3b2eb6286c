"""``Laps``: seconds of one thing after another on a device, measured without making the host wait for it."""

from __future__ import annotations

import time

import torch

from trainwright.runtime.device import synchronise


class Laps:
    """Seconds between marks: on a CPU by its clock, on CUDA by events in the current stream, which are read late."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[float | torch.cuda.Event] = []

    def mark(self) -> None:
        """Begin a lap, and end the one before."""
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Returns the seconds of each lap; waits for the device."""
        synchronise(self._device)
        found = []
        for begin, end in zip(self._marks, self._marks[1:], strict=False):
            if isinstance(begin, float) and isinstance(end, float):
                found.append(end - begin)
            elif isinstance(begin, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
                found.append(begin.elapsed_time(end) / 1e3)
        return found
