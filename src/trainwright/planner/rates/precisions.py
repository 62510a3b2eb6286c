"""Rates in a precision that a device was not measured in: of one that it was, in proportion to the datasheet's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.kernels import Kernels, Kind
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.rates.derived import Derived
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Precision


@dataclass(frozen=True, kw_only=True)
class OtherPrecision(Derived):
    """A source of rates whose products run ``faster`` than those of ``source`` in the precision ``measured``.

    Activations of both have one size, so that all else takes as long. ``doubt`` is the factor of the time by which
    nobody knows how much slower it is.
    """

    measured: Precision
    faster: float = 1.0

    def kernels(self, run: RunSpec, layouts: Layouts, *, without: Collection[Kind] = ()) -> Kernels:
        """Returns the seconds of each layout."""
        run = replace(run, workload=replace(run.workload, precision=self.measured))
        every = self.source.kernels(run, layouts, without=without)
        if self.faster == 1.0 or "products" in without:
            return every
        rest = self.source.kernels(run, layouts, without={*without, "products"})
        kept = 1.0 - 1.0 / self.faster
        return replace(
            every,
            forward=every.forward - kept * (every.forward - rest.forward),
            backward=every.backward - kept * (every.backward - rest.backward),
            weight=every.weight - kept * (every.weight - rest.weight),
        )
