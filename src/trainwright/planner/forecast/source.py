"""What a forecast asks of whoever knows how fast devices are (``planner.rates``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from trainwright.planner.counts.kernels import Exposure, Kernels, Kind
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.process import Process
from trainwright.spec.run import RunSpec


class RateSource(Protocol):
    """Rates of one device of a run's cluster: from the catalogue, from probes, or corrected by finished runs."""

    def kernels(self, run: RunSpec, layouts: Layouts, *, without: Collection[Kind] = ()) -> Kernels:
        """Returns the seconds of kernels of each layout, as if there were no work of the kinds in ``without``.

        Raises:
            RecipeError: no rate is known for what the run asks of the device.
        """

    def exposure(self, run: RunSpec) -> Exposure:
        """Returns what the run's software makes of communication."""

    def process(self, run: RunSpec) -> Process | None:
        """Returns what a training process holds beside tensors; None where the stack's file says it."""

    def spread(self, run: RunSpec) -> float:
        """Returns the standard deviation of the logarithm of measured over predicted seconds of a step."""
