"""The best layout that fits of runs that differ in little from one another, as ``layouts.compare`` ranks them.

What states alone keep from fitting, on the device or beside it, is struck out before its whole memory is counted, and
layouts are listed once for all runs that have the same: of a hundred changes of a run that does not fit, most still do
not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.hardware.catalogue.support import lacking_axes
from trainwright.planner.counts.kernels import RateSource
from trainwright.planner.counts.layouts import OFFLOADS, FixedLayout
from trainwright.planner.forecast.forecast import Forecast
from trainwright.planner.forecast.memory.table import MemoryTable, usable_bytes
from trainwright.planner.forecast.networks import counted
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.candidates import Candidates, candidates, parallel_plan
from trainwright.planner.search.layouts import Compared, Refuses, is_wasteful, rated, refuse_unknown_rate
from trainwright.planner.search.memo import within
from trainwright.spec.run import RunSpec

ROOM = 1 << 60
"""Bytes of a device that any layout fits into."""


def with_room(run: RunSpec) -> RunSpec:
    """Returns the run on the same devices and hosts, were there memory for any layout."""
    cluster = run.cluster
    device = replace(cluster.device, memory_bytes=ROOM, visible_bytes=None)
    node = replace(cluster.node, device=device, host_memory_bytes=None)
    return replace(run, cluster=replace(cluster, node=node))


@dataclass(slots=True)
class Fitting:
    """Finds the best layouts of runs of one model by one software on clusters of one device."""

    source: RateSource = CATALOGUE
    listed: dict[tuple[object, ...], Candidates] = field(default_factory=dict)
    """Candidates by all that they depend on beside model and software."""

    def best(
        self, run: RunSpec, layout: FixedLayout, *, frugal: bool = False, refuses: Refuses | None = None
    ) -> Forecast | None:
        """Returns the forecast [1] of the layout that ``compare`` puts first on the whole cluster; None: none fits.

        What ``refuses`` gives reasons against is left out.

        Raises:
            RecipeError: as ``compare``.
        """
        refuse_unknown_rate(run)
        # The sensible ones are some of all: what keeps all from fitting keeps those, which is most often so.
        every = self._fitting(run, layout, wasteful=True)
        if every is None:
            return None
        sensible = None
        if not is_wasteful(layout) and run.cluster.devices > 1:  # one divides nothing
            sensible = self._fitting(run, layout, wasteful=False)
        for found in (sensible, every):
            compared = None if found is None else rated(run, *found, self.source, frugal=frugal)
            place = None if compared is None else _first(compared, refuses)
            if compared is not None and place is not None:
                return compared.forecast(place)
        return None

    def _fitting(self, run: RunSpec, layout: FixedLayout, *, wasteful: bool) -> tuple[Candidates, MemoryTable] | None:
        """Returns the candidates whose states have room, and what they need; None where none of them fits."""
        left, network, device = self._listed(run, layout, wasteful=wasteful), counted(run.model), run.cluster.device
        places = within(left, network.states_bytes(run, left.layouts), run, usable_bytes(device))
        host = run.cluster.node.host_memory_bytes
        if len(places) and host is not None:
            places = places[network.host_bytes(run, left.layouts)[places] <= host]
        if not len(places):
            return None
        if len(places) < len(left.layouts):
            left = replace(left, layouts=left.layouts.take(places))
        memory = network.memory(run, left.layouts, self.source.process(run))
        return (left, memory) if (memory.fits(device) & memory.fits_host(run.cluster.node)).any() else None

    def _listed(self, run: RunSpec, layout: FixedLayout, *, wasteful: bool) -> Candidates:
        """Returns the candidates; those of runs that differ in what leaves the device alone are listed once."""
        work, placed, moved = run.workload, layout.copy(), layout.get("offload", "none")
        if moved not in run.stack.runs.stages_with:
            placed.pop("offload", None)
        shape = work.sequence_tokens, work.batch_sequences, work.fused_attention, work.update_in_backward
        places = run.model.blocks, run.cluster.nodes, run.cluster.devices
        key = *places, *shape, *lacking_axes(run), *sorted(placed.items()), wasteful
        if key not in self.listed:
            self.listed[key] = candidates(run, [run.cluster.devices], wasteful=wasteful, layout=placed)
        left = self.listed[key]
        layouts = replace(left.layouts, offload=np.full(len(left.layouts), float(OFFLOADS.index(moved))))
        return replace(left, layouts=layouts)


def _first(compared: Compared, refuses: Refuses | None) -> NDArray[np.intp] | None:
    """Returns the place [1] of the best that is not refused; None: all are."""
    order = compared.order()
    if refuses is None:
        return order[:1]
    each = (np.asarray([place]) for place in order if not refuses(*parallel_plan(compared.layouts, place)))
    return next(each, None)
