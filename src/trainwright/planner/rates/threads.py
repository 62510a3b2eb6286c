"""Rates of a processor that computes with other threads than it was measured with."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from trainwright.planner.counts.kernels import Exposure, Kernels, Kind, RateSource
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.process import Process
from trainwright.spec.plan import INTERVAL
from trainwright.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class OnThreads:
    """A source of rates whose kernels take ``slower`` times as long as those of ``source``, or up to as long as them.

    Matrix products lose in proportion to the threads, what waits for memory may lose nothing. More threads than cores
    wait for each other: ``doubt`` is the factor of the time by which nobody knows what they lose.
    """

    source: RateSource
    slower: float
    doubt: float

    def kernels(self, run: RunSpec, layouts: Layouts, *, without: Collection[Kind] = ()) -> Kernels:
        """Returns the seconds of each layout."""
        kernels = self.source.kernels(run, layouts, without=without)
        return replace(kernels, pace=kernels.pace * self.slower, update=kernels.update * self.slower)

    def exposure(self, run: RunSpec) -> Exposure:
        """Returns the exposure that ``source`` knows."""
        return self.source.exposure(run)

    def process(self, run: RunSpec) -> Process | None:
        """Returns the process that ``source`` knows."""
        return self.source.process(run)

    def spread(self, run: RunSpec) -> float:
        """Returns the deviation of ``source`` with that of the doubt."""
        return math.hypot(self.source.spread(run), math.log(self.doubt) / INTERVAL)
