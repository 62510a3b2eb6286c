"""Times calls many times over and returns median, quartiles and the fastest, on a CPU or a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from trainwright.hardware.machine.probes import Timing
from trainwright.runtime.device import marker, seconds_between, synchronise

Call = Callable[[], object]


class Stopwatch:
    """Measures calls on one device, each within a time budget.

    Args:
        device: where the calls compute.
        budget_s: time for all repetitions of one call; ``least`` of them are made whatever they take.
        least: repetitions that are always made, 2 or more: quartiles need two values.
        most: repetitions are never more than these.
    """

    def __init__(self, device: torch.device, *, budget_s: float, least: int = 3, most: int = 30) -> None:
        self.device, self._mark = device, marker(device)
        self.budget_s = budget_s
        self.least = least
        self.most = most

    def time(self, call: Call) -> Timing:
        """Timing of ``call``, warmed up once."""
        (timing,) = self.rounds(call)
        return timing

    def rounds(self, *calls: Call) -> tuple[Timing, ...]:
        """Timings of calls that follow one another, in rounds of all of them; the first round only warms up."""
        seconds: list[list[float]] = []
        spent_s = 0.0
        for repetition in range(-1, self.most):
            elapsed = [self._once(call) for call in calls]
            if repetition >= 0:
                seconds.append(elapsed)
                spent_s += sum(elapsed)
            if len(seconds) >= self.least and spent_s >= self.budget_s * len(calls):
                break
        return tuple(_timing(column) for column in zip(*seconds, strict=True))

    def _once(self, call: Call) -> float:
        synchronise(self.device)
        begin = self._mark()
        call()
        if isinstance(begin, float):  # of the host's clock: what it asked for is to be done
            synchronise(self.device)
        end = self._mark()
        synchronise(self.device)
        return seconds_between(begin, end)


def _timing(seconds: tuple[float, ...]) -> Timing:
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(median_s=median, low_s=low, high_s=high, fastest_s=min(seconds), repetitions=len(seconds))
