"""Rates of a processor that computes with other threads than it was measured with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.kernels import Kernels, Kind
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.rates.derived import Derived
from trainwright.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class OnThreads(Derived):
    """A source of rates whose kernels take ``slower`` times as long as those of ``source``, or up to as long as them.

    Matrix products lose in proportion to the threads, what waits for memory may lose nothing. More threads than cores
    wait for each other: ``doubt`` is the factor of the time by which nobody knows what they lose.
    """

    slower: float

    def kernels(self, run: RunSpec, layouts: Layouts, *, without: Collection[Kind] = ()) -> Kernels:
        """Returns the seconds of each layout."""
        kernels = self.source.kernels(run, layouts, without=without)
        return replace(kernels, pace=kernels.pace * self.slower, update=kernels.update * self.slower)
