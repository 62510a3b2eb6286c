"""Times a call many times over and says median and quartiles, on a CPU or a GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from trainwright.hardware.probes import Timing
from trainwright.runtime.device import synchronise

MINIMUM_REPETITIONS = 3


class Stopwatch:
    """Measures calls on one device, each within a time budget.

    Args:
        device: where the calls compute.
        budget_s: time for all repetitions of one call; at least ``MINIMUM_REPETITIONS`` are made whatever they take.
        most: repetitions are never more than these.
    """

    def __init__(self, device: torch.device, *, budget_s: float, most: int = 30) -> None:
        self.device = device
        self.budget_s = budget_s
        self.most = most

    def time(self, call: Callable[[], object], *, prepare: Callable[[], object] | None = None) -> Timing:
        """Median and quartiles of ``call``, warmed up once; ``prepare`` runs before each, untimed."""
        seconds: list[float] = []
        for repetition in range(-1, self.most):
            if prepare is not None:
                prepare()
            elapsed = self._once(call)
            if repetition >= 0:
                seconds.append(elapsed)
            if len(seconds) >= MINIMUM_REPETITIONS and sum(seconds) >= self.budget_s:
                break
        low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return Timing(median_s=median, low_s=low, high_s=high, repetitions=len(seconds))

    def _once(self, call: Callable[[], object]) -> float:
        if self.device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            synchronise(self.device)
            start.record()
            call()
            end.record()
            synchronise(self.device)
            return start.elapsed_time(end) / 1e3
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin
