"""What would make a run fit: the least changes to it, ranked by how much slower they make it.

Layouts, micro batches and recomputation are tried by every search; a change is beyond those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.units import format_factor
from trainwright.hardware.catalogue.nodes import cluster as named_cluster
from trainwright.hardware.catalogue.nodes import node_size
from trainwright.hardware.catalogue.support import check
from trainwright.planner.counts.kernels import RateSource
from trainwright.planner.counts.layouts import RECOMPUTES, FixedLayout
from trainwright.planner.forecast.host_link import UNUSUAL
from trainwright.planner.forecast.played import moved_slowdown, played
from trainwright.planner.forecast.switches import check_switches
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.fitting import Fitting
from trainwright.planner.search.layouts import Ranked, ranked, refuses_of
from trainwright.planner.search.variants import Variant, singles, together
from trainwright.spec.device import ClusterSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

SLOW = 10.0
"""Times as long as the run would take with memory enough, beyond which several changes are tried together, too."""
WASTEFUL = 3.0
"""The same of more devices, which wait for each other."""
CUT = 2.0
"""Times as long as another way may take before people rather learn less."""
MOST_TOGETHER, BETTER = 5, 4.0
"""Changes of several things at once that are named, the least slowdown first, and up to so many times that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """``name`` says what to change, ``best`` the layout that a plan chooses then.

    ``slowdown`` is device-seconds for a token, over those of the unchanged run were there memory for it.
    ``trains_less``: only adapters are trained.
    """

    name: str
    slowdown: float
    counted: float
    """The slowdown that it is ranked by."""
    devices: int
    best: Ranked
    trains_less: bool = False
    fields: Mapping[str, str | bool] = field(default_factory=dict)
    """What to ask for it, by a question's fields."""
    unusual: bool = False
    """Something leaves the device, or there are more devices."""
    cuts: bool = False
    """Adapters are fewer or smaller, or examples are cut off earlier: what is learnt is less."""
    is_layout: bool = False
    """The run stays as it is; what was fixed of its layout does not."""
    is_another_run: bool = False
    """Adapters in place of a training from the start of which nobody said on what: no slowdown compares the two."""

    @property
    def order(self) -> tuple[float, ...]:
        """Returns the key of the best first.

        What trains everything comes before what trains less; of each what is beyond ``SLOW``, of more devices beyond
        ``WASTEFUL``, comes last, and what surely fits first; then the least slowdown: that of what is unusual times
        ``UNUSUAL``, that of another layout over it, and that of what cuts adapters or examples down times ``CUT``.
        """
        slow = WASTEFUL if "on" in self.fields else SLOW
        kind = 1.0 * self.best.unsure + 2.0 * (self.counted > slow)
        counted = self.counted * UNUSUAL ** (self.unusual - self.is_layout) * (CUT if self.cuts else 1.0)
        return float(self.trains_less), kind, counted

    def told(self, divided: str) -> str:
        """Returns what speaks for and against it, and how the run is ``divided`` then, if otherwise."""
        if self.is_another_run:
            return "tunes adapters alone, on examples: another run"
        time = f"{format_factor(self.slowdown)} x the device-time"
        less = "; trains adapters alone" if self.trains_less else ""
        other = f"; {divided}" if divided else ""
        return f"{time}{less}{'; uncertain' if self.best.unsure else ''}{other}"


BatchOver = Callable[[int], int]
"""The tokens of a step's batch on so many devices, where nobody asked for a batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What no change touches; ``unit``: device-seconds of the unchanged run for a token, were there memory for it."""

    search: Fitting
    usual: FixedLayout
    unit: float
    frugal: bool
    """What surely fits comes first, as in the plan that the change leads to."""
    batch_over: BatchOver | None


def changes(
    run: RunSpec,
    *,
    unit: float,
    source: RateSource = CATALOGUE,
    most_devices: int = 16_384,
    usual: FixedLayout | None = None,
    frugal: bool = False,
    batch_over: BatchOver | None = None,
) -> tuple[Change, ...]:
    """Returns the changes after which the run fits; the best of several together where no single one is enough.

    They stand in the order of ``Change.order``. What the run's software does not run, or
    ``source`` has no rate for, is left out. Raises as ``search.layouts.compare``.

    Args:
        run: does not fit.
        unit: device-seconds of the unchanged run for a token that slowdowns are told by.
        source: says how fast a device is.
        most_devices: of a larger cluster.
        usual: parts of a layout that the software fixes by itself, whatever is changed.
        frugal: layouts are chosen as where a model is tuned; where adapters are trained they always are.
        batch_over: the batch on more devices; None: the run's.
    """
    known = _Known(
        search=Fitting(source), usual=usual or FixedLayout(), unit=unit, frugal=frugal, batch_over=batch_over
    )
    every = list(singles(run))
    fitting = _those_that_fit(every, run, known)
    fitting += _on_more(run, most_devices, known)
    near = (each for each in fitting if not each.trains_less and each.devices == run.cluster.devices)
    if all(each.counted > SLOW for each in near):
        several = sorted(_those_that_fit(together(run, every), run, known), key=lambda each: each.counted)
        fitting += [each for each in several if each.counted <= BETTER * several[0].counted][:MOST_TOGETHER]
    return tuple(sorted(fitting, key=lambda change: change.order))


def surest(
    run: RunSpec,
    *,
    unit: float,
    source: RateSource = CATALOGUE,
    usual: FixedLayout | None = None,
    frugal: bool = False,
    batch_over: BatchOver | None = None,
) -> Change | None:
    """Returns the best change after which a run surely fits that may not; None where a single one is not enough.

    Only what can be asked for is looked at. Arguments are those of ``changes``, and so are errors.
    """
    known = _Known(
        search=Fitting(source), usual=usual or FixedLayout(), unit=unit, frugal=frugal, batch_over=batch_over
    )
    again = [Variant(name=f"recompute {each}", recompute=each, fields={"recompute": each}) for each in RECOMPUTES[1:]]
    fitting = _those_that_fit([*(again if run.model.is_divisible else ()), *singles(run)], run, known)
    fitting += _on_more(run, 2 * run.cluster.devices, known)
    sure = (each for each in fitting if each.fields and not each.best.unsure)
    return min(sure, key=lambda change: change.order, default=None)


def _on_more(run: RunSpec, most_devices: int, known: _Known) -> list[Change]:
    """Returns the fewest devices on which the run fits, and where that is not sure the fewest on which it is."""
    found: list[Change] = []
    for more in larger(run.cluster, most_devices):
        batch = run.workload.batch_tokens if known.batch_over is None else known.batch_over(more.devices)
        variant = Variant(name=f"{more.devices:,} devices", fields={"on": more.name}, changed={"batch_tokens": batch})
        change = _tried(variant, replace(run, cluster=more), known)
        if change is not None and not (found and change.best.unsure):
            found.append(replace(change, unusual=True))
        if found and not found[-1].best.unsure:
            break
    return found


def _those_that_fit(variants: Iterable[Variant], run: RunSpec, known: _Known) -> list[Change]:
    """Returns changes that fit, nothing on drives that fits into memory.

    Of a group that is the first, and where it may not fit the first that surely does.
    """
    fitting: list[Change] = []
    found: set[tuple[str, str]] = set()
    unsure: set[tuple[str, str]] = set()
    in_memory: list[tuple[str, Workload]] = []
    for each in variants:
        place, workload = each.offload.removesuffix("-nvme"), replace(run.workload, **each.changed)
        if (place, each.group) in found or (place, workload) in in_memory:
            continue
        change = _tried(each, run, known)
        if change is None or (change.best.unsure and (place, each.group) in unsure):
            continue
        fitting.append(change)
        in_memory.append((each.offload, workload))
        if each.group:
            (unsure if change.best.unsure else found).add((place, each.group))
    return fitting


def larger(cluster: ClusterSpec, most_devices: int) -> Iterator[ClusterSpec]:
    """Yields clusters of twice the devices, again and again: a node is filled up first, then more are taken.

    A node without a name is none of the catalogue's: it is as full as it is, and without a network the only one.
    """
    listed = bool(cluster.node.name)
    size = node_size(cluster.device.name) if listed else cluster.node.devices
    while listed or cluster.scale_out is not None:
        if cluster.nodes == 1 and 2 * cluster.devices <= size:
            cluster = named_cluster(f"{2 * cluster.devices}x{cluster.device.name}")
        else:
            cluster = replace(cluster, nodes=2 * cluster.nodes)
        if cluster.devices > most_devices:
            return
        yield cluster


def _tried(variant: Variant, run: RunSpec, known: _Known) -> Change | None:
    """Returns the change, if the run fits with it, the host's memory included."""
    workload, cluster = replace(run.workload, **variant.changed), run.cluster
    if workload.problems(run.model):
        return None
    # Adapters stand beside the model as it is deployed.
    run = replace(run, workload=workload, model=run.transformer.deployed() if variant.trains_less else run.model)
    moved = FixedLayout() if variant.offload == "none" else FixedLayout(offload=variant.offload)
    again = FixedLayout() if variant.recompute is None else FixedLayout(recompute=variant.recompute)
    layout = known.usual | moved | again
    try:
        check(run, layout)
        check_switches(run, layout)
        # A plan of the changed run has to choose the same.
        frugal = known.frugal or variant.trains_less
        best = known.search.best(run, layout, frugal=frugal, refuses=refuses_of(run))
    except RecipeError:  # its software does not run it, or the source has no rate for what is asked of the device
        return None
    if best is None:
        return None
    best = played(best)
    slowdown = float(best.step_s[0]) * cluster.devices / workload.step_tokens / known.unit
    # Nobody measured that what moves bytes is faster: it is ranked by the same layout without.
    counted = moved_slowdown(best) if variant.moves and slowdown < 1 else slowdown
    (found,) = ranked(best, cluster.device)
    return Change(
        name=variant.name,
        slowdown=slowdown,
        counted=counted,
        devices=cluster.devices,
        best=found,
        trains_less=variant.trains_less,
        cuts=variant.cuts,
        fields=variant.asked,
        unusual=variant.moves,
        is_layout=variant.recompute is not None,
    )
