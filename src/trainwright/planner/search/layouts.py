"""The fastest layouts of a model on a cluster, and why others were left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.registry import load
from trainwright.hardware.catalogue.support import lacking_axes
from trainwright.planner.counts.kernels import RateSource
from trainwright.planner.counts.layouts import FixedLayout, Layouts, Numbers, taken
from trainwright.planner.counts.work import peak_flops_per_s
from trainwright.planner.forecast.forecast import Forecast, forecast
from trainwright.planner.forecast.memory.table import MemoryTable, usable_bytes
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.candidates import Candidates, candidates, parallel_plan
from trainwright.planner.search.memo import Memo, Needed
from trainwright.planner.search.table import Pruned
from trainwright.spec.device import DeviceSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Offload, ParallelPlan, Recompute, Workload

Refuses = Callable[[ParallelPlan, Recompute], tuple[str, ...]]
"""Says why what trains does not execute a layout; nothing where it does."""
UNSURE = (1.0, 1.1, 1.21)
"""How much slower than a layout that surely fits one counts by its ``MemoryTable.doubt``."""
UNSURE_TUNED = (1.0, 2.0, 3.0)
"""The same where a model is tuned: a run that is lost half-way costs that much."""
OF_NO_AXIS = frozenset(("recompute", "recompute_shards", "usual_zero_stage", "usual_micro_batch", "compile", "offload"))
"""Parts of a layout that divide nothing or are habits: where others are not fixed, layouts are sensible as ever."""
PLAIN = 1.05
"""How much longer a step may take whose layout divides the model in fewer ways: there is less to go wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """A layout with its forecast: seconds of a step and their range, bytes that the worst device needs.

    ``unsure``: the device's memory lies within the error of the prediction.
    """

    parallel: ParallelPlan
    recompute: Recompute
    devices: int
    fits: bool
    unsure: bool
    step_s: float
    low_s: float
    high_s: float
    memory_bytes: float
    host_bytes: float
    nvme_bytes: float
    mfu: float
    tokens_per_s_per_device: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Compared:
    """Layouts [L] with the bytes that they need of a device at the peak.

    ``step_s`` is infinite where the peak is beyond the device's memory, and where less recomputation fits too.
    """

    layouts: Layouts
    worth: NDArray[np.intp]
    """The places of those whose time was asked for, ascending."""
    timed: Forecast
    """Theirs."""
    memory_bytes: Numbers
    step_s: Numbers
    doubt: NDArray[np.int_]
    """Whether memory suffices, by ``MemoryTable.doubt``."""
    pruned: tuple[Pruned, ...]
    frugal: bool = False
    """What surely fits comes first, and of layouts as plain and about as fast that which needs least memory."""

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Returns True [L] where the peak fits into the device's memory, with as little recomputation as that takes."""
        return np.isfinite(self.step_s)

    @property
    def rank_s(self) -> Numbers:
        """Returns ``step_s``, longer where memory is unsure: what surely fits comes first unless much slower."""
        return self.step_s * longer(self.doubt, frugal=self.frugal)

    def forecast(self, places: NDArray[np.intp]) -> Forecast:
        """Returns the forecast of the layouts at ``places``, all of them among those that fit."""
        return self.timed.take(np.searchsorted(self.worth, places))

    def order(self) -> NDArray[np.intp]:
        """Returns the places of those that fit: the plainest of the best, then by time; else the nearest to fitting."""
        if not self.fits.any():
            return np.argsort(self.memory_bytes, kind="stable")
        fastest = np.argsort(self.rank_s, kind="stable")[: int(self.fits.sum())]
        first = self._plainest(self.rank_s)
        return np.concatenate([[first], fastest[fastest != first]])

    def best(self, steps: Numbers) -> NDArray[np.intp]:
        """Returns the place of the best for each number of devices of which one fits, over so many ``steps`` each."""
        fitting = np.flatnonzero(self.fits)
        numbers = self.layouts.devices[fitting]
        order = np.argsort(numbers, kind="stable")
        groups = np.split(fitting[order], np.flatnonzero(np.diff(numbers[order])) + 1)
        seconds = self.rank_s * steps
        return np.asarray([self._plainest(seconds, group) for group in groups if len(group)], dtype=np.intp)

    def _plainest(self, seconds: Numbers, among: NDArray[np.intp] | None = None) -> int:
        return plainest(self.layouts, seconds, self.doubt, self.memory_bytes if self.frugal else None, among=among)


def refuses_of(run: RunSpec) -> Refuses | None:
    """Returns what says why the run's software does not execute layouts of it; None: nothing says so."""
    rule = run.stack.runs.refuses
    return cast("Refuses", load(rule, kind="layout")(run)) if rule else None


def longer(doubt: NDArray[np.int_], *, frugal: bool) -> Numbers:
    """Returns [L] by what a step's time is multiplied to rank it: more where memory may not suffice."""
    return np.asarray(UNSURE_TUNED if frugal else UNSURE)[doubt]


def splits(layouts: Layouts, places: NDArray[np.intp] | None = None) -> NDArray[np.int_]:
    """Returns in how many ways beyond plain data parallelism the layouts at ``places`` (None: all) divide the model."""
    at = slice(None) if places is None else places
    axes = (layouts.tp, layouts.pp, layouts.cp, layouts.ep, layouts.virtual_stages)
    hybrid = layouts.shares_states[at] & (layouts.dp_replicate[at] > 1)
    count: NDArray[np.int_] = np.sum([axis[at] > 1 for axis in axes], axis=0) + hybrid
    return count


def plainest(
    layouts: Layouts,
    seconds: Numbers,
    doubt: NDArray[np.int_],
    memory_bytes: Numbers | None = None,
    *,
    among: NDArray[np.intp] | None = None,
) -> int:
    """Returns the place of the least divided layout that is as sure to fit as the fastest, and at most 5 % slower.

    Of those that are as plain the fastest is taken, replicas before shards; where ``memory_bytes`` are given that which
    needs least. Only places ``among`` these are looked at; None: all.
    """
    places = np.arange(len(seconds)) if among is None else among
    first = places[np.argmin(seconds[places])]
    near = places[(seconds[places] <= PLAIN * seconds[first]) & (doubt[places] <= doubt[first])]
    then = (seconds[near], layouts.shares_states[near]) if memory_bytes is None else (memory_bytes[near],)
    return int(near[np.lexsort((*then, splits(layouts, near)))[0]])


def compare(
    run: RunSpec,
    devices: Sequence[int],
    *,
    offload: Offload = "none",
    thorough: bool = True,
    layout: FixedLayout | None = None,
    frugal: bool = False,
    larger: Sequence[tuple[Workload, Sequence[int]]] = (),
    memo: Memo | None = None,
    source: RateSource = CATALOGUE,
    refuses: Refuses | None = None,
) -> Compared:
    """Returns the memory of every sensible layout, and the time of those that fit and can be the fastest.

    ``larger`` has the same work in larger batches, each with the numbers of devices for which it is compared too. Of
    ``layout`` what is fixed is kept, sensible or not. Where none fits, a ``thorough`` comparison tries those that
    are not sensible too. Comparisons of one model, workload, stack and ``layout`` on many devices can share a ``memo``:
    what reaches as far has the same layouts. It keeps the latest, so that such devices should follow each other; of
    layouts for which no device that it knows has room, nothing but their number is told. What ``refuses`` gives reasons
    against is left out, in comparisons without a ``memo``.

    Raises:
        RecipeError: the device has no rate for the workload's precision, or no link that the layouts need.
    """
    refuse_unknown_rate(run)
    wanted = FixedLayout() if layout is None else layout
    wasteful = is_wasteful(wanted)
    sensible = _compared(
        *(run, devices, source),
        offload=offload,
        layout=wanted,
        frugal=frugal,
        larger=larger,
        memo=memo,
        wasteful=wasteful,
        refuses=refuses,
    )
    if sensible.fits.any() or not thorough:
        return sensible
    every = _compared(
        run, devices, source, offload=offload, layout=wanted, frugal=frugal, wasteful=True, refuses=refuses
    )
    if every.fits.any():
        return every
    free = replace(run, tunes=False)
    if lacking_axes(free) != lacking_axes(run):  # tuned by other axes than software has for it, where nothing else fits
        other = compare(
            free, devices, offload=offload, layout=layout, frugal=frugal, larger=larger, source=source, refuses=refuses
        )
        if other.fits.any():
            return other
    return replace(every, pruned=sensible.pruned)


def refuse_unknown_rate(run: RunSpec) -> None:
    """Raises RecipeError where the device has no rate for the workload's precision."""
    device, precision = run.cluster.device, run.workload.precision
    if not peak_flops_per_s(device, precision):
        expected = f"one of {', '.join(sorted(device.flops_per_s)) or 'none'}"
        raise RecipeError("no {precision} rate is known", where=device.name, expected=expected, precision=precision)


def is_wasteful(wanted: FixedLayout) -> bool:
    """Returns whether what is fixed divides a model in ways of its own, sensible or not."""
    return bool(wanted.keys() - OF_NO_AXIS)


def _compared(
    run: RunSpec,
    devices: Sequence[int],
    source: RateSource,
    *,
    offload: Offload,
    layout: FixedLayout,
    frugal: bool,
    larger: Sequence[tuple[Workload, Sequence[int]]] = (),
    wasteful: bool = False,
    memo: Memo | None = None,
    refuses: Refuses | None = None,
) -> Compared:
    lacking_axes(run)  # raises where the software does not run on such devices, which a memo does not say

    def listed() -> Candidates:
        parts = [
            candidates(replace(run, workload=work), counts, offload=offload, wasteful=wasteful, layout=layout)
            for work, counts in ((run.workload, devices), *larger)
        ]
        left = replace(parts[0], layouts=Layouts.joined([each.layouts for each in parts]))
        return left if refuses is None else _executed(left, refuses)

    batches = ((run.workload, devices), *larger)
    shape = tuple((work.batch_tokens, *counts) for work, counts in batches)
    needed = (memo or Memo()).needed(run, shape, listed, source)
    compared = rated(run, needed.left, needed.memory, source, frugal=frugal)
    return replace(compared, pruned=(*compared.pruned, *_beyond(run, needed)))


def rated(run: RunSpec, left: Candidates, memory: MemoryTable, source: RateSource, *, frugal: bool) -> Compared:
    """Returns layouts that need so much memory with the time of those that fit; raises as ``forecast``."""
    device = run.cluster.device
    fits = memory.fits(device) & memory.fits_host(run.cluster.node)
    seconds = np.full(len(fits), np.inf)
    doubt = memory.doubt(device)
    enough = fits & (doubt == 0) if frugal else fits
    # What is recomputed does not cross the link to host memory, which may be slower.
    crosses = run.workload.paged_moments or run.workload.activation_offload
    worth = np.flatnonzero(fits if crosses else fits & ~_needless(enough, left.recomputes))
    timed = forecast(run, left.layouts.take(worth), source, memory=taken(memory, worth))
    seconds[worth] = timed.step_s
    return Compared(
        layouts=left.layouts,
        worth=worth,
        timed=timed,
        memory_bytes=memory.needed_bytes,
        step_s=seconds,
        doubt=doubt,
        pruned=left.pruned,
        frugal=frugal,
    )


def executed(layouts: Layouts, refuses: Refuses | None) -> Layouts:
    """Returns the layouts that are not refused.

    Raises:
        RecipeError: all are; says why the first is.
    """
    reasons = [] if refuses is None else _reasons(layouts, refuses)
    if reasons and all(reasons):
        raise RecipeError("this layout cannot run: {reasons}", field="layout", reasons=reasons[0])
    return layouts.take(np.flatnonzero([not each for each in reasons])) if any(reasons) else layouts


def _reasons(layouts: Layouts, refuses: Refuses) -> list[str]:
    """Returns why each layout is not executed; empty where it is."""
    return ["; ".join(refuses(*parallel_plan(layouts, place))) for place in range(len(layouts))]


def _executed(left: Candidates, refuses: Refuses) -> Candidates:
    """Returns the layouts that are not refused; the others are counted by their reasons."""
    reasons = _reasons(left.layouts, refuses)
    kept = np.asarray([not each for each in reasons], dtype=np.bool_)
    counts = Counter(each for each in reasons if each)
    pruned = (Pruned(rule="not executed", reason=reason, layouts=count) for reason, count in counts.items())
    # Of a layout some recomputations may be left: then none of them stands for the others.
    return Candidates(
        layouts=left.layouts.take(kept),
        pruned=(*left.pruned, *pruned),
        recomputes=left.recomputes if kept.all() else 1,
    )


def _beyond(run: RunSpec, needed: Needed) -> Iterator[Pruned]:
    """Yields the classes of layouts that do not fit: by their states alone, and by their peak."""
    device, memory = run.cluster.device, needed.memory
    usable, over = usable_bytes(device), needed.states > usable_bytes(device)
    fits = memory.fits(device) & memory.fits_host(run.cluster.node)
    peaks = memory.needed_bytes[~over[needed.places] & ~fits]
    yield from (*_too_large("states", needed.states[over] / usable), *_too_large("activations", peaks / usable))


def too_large(rule: str, low: float, high: float) -> str:
    """Returns the reason of a rule about memory, which is needed ``low`` to ``high`` times."""
    what = {"states": "weights, gradients and optimizer state alone are", "activations": "states fit, but the peak is"}
    least, most = (f"{value:.1f}x" if value < 9.95 else f"{value:,.0f}x" for value in (low, high))
    return f"{what[rule]} {least if least == most else f'{least} to {most}'} the memory"


def _too_large(rule: str, ratios: Numbers) -> Iterator[Pruned]:
    if len(ratios):
        low, high = float(ratios.min()), float(ratios.max())
        yield Pruned(rule=rule, reason=too_large(rule, low, high), layouts=len(ratios), ratios=(low, high))


def _needless(fits: NDArray[np.bool_], recomputes: int) -> NDArray[np.bool_]:
    """Returns True [L] where less recomputation fits too, which is never slower."""
    each = fits.reshape(-1, recomputes)
    before: NDArray[np.int_] = np.cumsum(each, axis=1) - each
    return np.ravel(before > 0)


def best_layouts(
    run: RunSpec, *, count: int = 5, offload: Offload = "none", source: RateSource = CATALOGUE
) -> list[Ranked]:
    """Returns the ``count`` best layouts on the whole cluster: those that fit, fastest first, else the nearest ones.

    Empty where no layout divides model and batch over the devices; raises as ``compare``.
    """
    compared = compare(run, [run.cluster.devices], offload=offload, source=source)
    places = compared.order()[:count]
    return ranked(forecast(run, compared.layouts.take(places), source), run.cluster.device) if len(places) else []


def ranked(forecast: Forecast, device: DeviceSpec) -> list[Ranked]:
    """Returns each layout of a forecast by itself, in its order."""
    rows, fits, unsure = [], forecast.memory.fits(device), forecast.memory.uncertain(device)
    for place in range(len(forecast.layouts)):
        parallel, recompute = parallel_plan(forecast.layouts, place)
        rows.append(
            Ranked(
                parallel=parallel,
                recompute=recompute,
                devices=int(forecast.layouts.devices[place]),
                fits=bool(fits[place]),
                unsure=bool(unsure[place]),
                step_s=float(forecast.step_s[place]),
                low_s=float(forecast.low_s[place]),
                high_s=float(forecast.high_s[place]),
                memory_bytes=float(forecast.memory.needed_bytes[place]),
                host_bytes=float(forecast.memory.node_bytes(forecast.run.cluster.node)[place]),
                nvme_bytes=float(forecast.memory.nvme_bytes[place]),
                mfu=float(forecast.mfu[place]),
                tokens_per_s_per_device=float(forecast.tokens_per_s_per_device[place]),
            )
        )
    return rows
