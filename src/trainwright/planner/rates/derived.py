"""Rates that follow from measured ones, with a doubt of their own."""

from __future__ import annotations

import math

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.kernels import Exposure, RateSource
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.process import Process
from trainwright.spec.plan import INTERVAL
from trainwright.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class Derived:
    """What follows from ``source``; ``doubt`` is the factor of the time by which nobody knows how it follows."""

    source: RateSource
    doubt: float = 1.0

    def exposure(self, run: RunSpec) -> Exposure:
        """Returns the exposure that ``source`` knows."""
        return self.source.exposure(run)

    def process(self, run: RunSpec) -> Process | None:
        """Returns the process that ``source`` knows."""
        return self.source.process(run)

    def spread(self, run: RunSpec) -> float:
        """Returns the deviation of ``source`` with that of the doubt."""
        return math.hypot(self.source.spread(run), math.log(self.doubt) / INTERVAL)

    def beyond(self, run: RunSpec, layouts: Layouts) -> Numbers:
        """Returns what ``source`` adds."""
        return self.source.beyond(run, layouts)
