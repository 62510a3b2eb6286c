"""What to run a training on: every device, number of nodes, cloud and kind of price, by time and dollars per run.

For each device one forecast holds all layouts of all numbers of nodes: links are the same, only the degrees differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainwright.core.errors import RecipeError
from trainwright.core.money import format_usd
from trainwright.core.units import format_seconds
from trainwright.hardware.catalogue.devices import device as catalogue_device
from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.catalogue.nodes import cluster, node_size
from trainwright.hardware.prices.clouds import billing_of
from trainwright.hardware.prices.price_list import PriceList, price_list
from trainwright.planner.cost.run_cost import RunCost, RunSettings, run_cost
from trainwright.planner.counts.work import usable_precision
from trainwright.planner.forecast.forecast import Forecast, forecast
from trainwright.planner.forecast.memory.table import usable_bytes
from trainwright.planner.forecast.networks import counted
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.candidates import Pruned, parallel_plan
from trainwright.planner.search.layouts import Memo, compare, too_large
from trainwright.planner.search.offers import OWN, PRICE_KINDS, Offer, offers, owned
from trainwright.spec.device import ClusterSpec, Price, PriceKind
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Precision, Recompute

MOST_DEVICES = 16_384
ENDLESS = 10.0
"""Wall-clock over the own time of steps and validations beyond which a run is no way to train."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One way to do the whole run.

    ``usd`` is None where no price is known; ``front``: no other at a price without doubt is both faster and cheaper;
    ``unsure``: what is needed of the device's memory is so near to all of it that the prediction's error decides.
    """

    device: str
    devices: int
    nodes: int
    parallel: ParallelPlan
    recompute: Recompute
    precision: Precision
    provider: str
    price_kind: PriceKind | None
    price: Price | None
    seconds: float
    low_s: float
    high_s: float
    usd: float | None
    usd_low: float | None
    usd_high: float | None
    step_s: float
    mfu: float
    memory_bytes: float
    memory_available_bytes: float
    kwh: float | None
    interruptions: float
    checkpoint_interval_s: float
    unsure: bool = False
    front: bool = False

    @property
    def cluster(self) -> str:
        """Returns the cluster in one word: ``64x8xh100-sxm``."""
        return f"{self.nodes}x{self.devices // self.nodes}x{self.device}"

    @property
    def source(self) -> str:
        """Returns the provider and its kind of price: ``Nebius spot``."""
        kind = "" if self.price_kind is None else self.price_kind.replace("_", "-")
        return f"{self.provider} {kind}".strip()

    @property
    def doubt(self) -> str:
        """Returns the reason why its price may not be had; empty where nothing speaks against it."""
        return "" if self.price is None else self.price.doubt

    @property
    def score(self) -> float:
        """Returns seconds times dollars: twice the devices pay while they take less than 1.41 times the hours."""
        return self.seconds * (0.0 if self.usd is None else self.usd)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A class of devices, layouts or ways to buy that was left out, how many of them, and why."""

    kind: Literal["device", "precision", "layout", "price", "goal"]
    name: str
    reason: str
    count: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Goals:
    """What the run must not exceed; None: anything."""

    budget_usd: float | None = None
    deadline_s: float | None = None

    def met_by(self, option: Option) -> bool:
        """Returns True where ``option`` is in time and within the budget; without a price the latter is not known."""
        in_time = self.deadline_s is None or option.seconds <= self.deadline_s
        within = self.budget_usd is None or (option.usd is not None and option.usd <= self.budget_usd)
        return in_time and within

    def order(self, option: Option) -> tuple[float, ...]:
        """Returns the key of the best first: cheapest in time, else fastest in budget, else least seconds x dollars.

        What has a doubtful price comes after all that has another, what has none last, by time.
        """
        if option.usd is None:
            return (2.0, option.seconds)
        doubtful = float(bool(option.doubt))
        if self.deadline_s is not None:
            return (doubtful, option.usd, option.seconds)
        if self.budget_usd is not None:
            return (doubtful, option.seconds, option.usd)
        return (doubtful, option.score, option.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """``options`` are all ways that meet the goals, best first; ``closest`` the nearest where none surely does."""

    options: tuple[Option, ...]
    closest: tuple[Option, ...]
    refused: tuple[Refusal, ...]
    goals: Goals

    @property
    def front(self) -> tuple[Option, ...]:
        """Returns the Pareto front of time against dollars, fastest first."""
        options = [option for option in (*self.options, *self.closest) if option.front]
        return tuple(sorted(options, key=lambda option: option.seconds))


@dataclass(slots=True)
class _Search:
    """What is asked, and what was found on the way."""

    run: RunSpec
    precision: Precision | None
    options: list[Option] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    rules: dict[str, Pruned] = field(default_factory=dict)
    memo: Memo = field(default_factory=dict)

    def on(self, machines: ClusterSpec) -> RunSpec:
        """Returns the run on one cluster, in the precision asked for, else in the one that its device takes."""
        precision = usable_precision(machines.device, self.precision)
        return replace(self.run, cluster=machines, workload=replace(self.run.workload, precision=precision))

    def count(self, pruned: Iterable[Pruned]) -> None:
        """Adds one device's classes of layouts to those of the others."""
        for each in pruned:
            known = self.rules.get(each.rule)
            if known is None:
                self.rules[each.rule] = each
                continue
            ratios, reason = each.ratios, known.reason
            if ratios is not None and known.ratios is not None:
                ratios = min(ratios[0], known.ratios[0]), max(ratios[1], known.ratios[1])
                reason = too_large(each.rule, *ratios)
            self.rules[each.rule] = replace(known, layouts=known.layouts + each.layouts, reason=reason, ratios=ratios)


def recommend(
    run: RunSpec,
    *,
    precision: Precision | None = None,
    devices: Sequence[str] | None = None,
    clouds: Sequence[str] | None = None,
    have: Sequence[ClusterSpec] = (),
    have_usd_per_device_hour: float = 0.0,
    goals: Goals | None = None,
    price_kinds: Sequence[PriceKind] = PRICE_KINDS,
    most_devices: int = MOST_DEVICES,
    prices: PriceList | None = None,
) -> Recommendation:
    """Returns all ways to do a run, ranked.

    Args:
        run: what is trained, with which software; every cluster that is looked at takes the place of its own. Layouts
            must divide its batches.
        precision: of all devices; None: bf16, fp16 or fp32, the first that a device has.
        devices: names of the catalogue; None: all of it.
        clouds: only prices of these.
        have: clusters that are there already, beside what can be rented.
        have_usd_per_device_hour: what an hour of those costs.
        goals: a budget and a deadline.
        price_kinds: on demand, spot (with expected interruptions), reserved.
        most_devices: of one run.
        prices: the price lists, unless given.

    Raises:
        RecipeError: an unknown device or cloud.
    """
    goals, prices = goals or Goals(), prices or price_list()
    search = _Search(run, precision)
    for machines in have:
        _survey(search, machines, [owned(machines, have_usd_per_device_hour)], goals, most_devices=machines.devices)
    for machines in _largest(search, devices, most_devices):
        name, size = machines.device.name, machines.node.devices
        bought = offers(name, prices, node_devices=size, clouds=clouds, kinds=price_kinds)
        if clouds is not None and bought[0].price is None:
            search.refused.append(Refusal(kind="price", name=name, reason="no known price in these clouds"))
            continue
        _survey(search, machines, bought, goals, most_devices=most_devices)
    return _ranked(search, goals)


def _largest(search: _Search, devices: Sequence[str] | None, most_devices: int) -> list[ClusterSpec]:
    """Returns the largest cluster of each device, sorted by what their layouts need alike."""
    names = device_names() if devices is None else dict.fromkeys(catalogue_device(name).name for name in devices)
    clusters = [cluster(f"{-(-most_devices // node_size(name))}x{node_size(name)}x{name}") for name in names]
    runs, libraries = [replace(search.run, cluster=each) for each in clusters], counted(search.run.model).library_bytes
    runs.sort(key=lambda run: (run.cluster.scale_up_devices, run.cluster.node.devices, libraries(run)))
    return [run.cluster for run in runs]


def device_counts(machines: ClusterSpec, most_devices: int, *, finer: bool = False) -> list[int]:
    """Returns parts of a node and whole nodes in powers of two, and a whole cluster below ``most_devices``.

    ``finer`` adds three halves of each whole number of nodes, where a deadline lies between two powers of two.
    """
    size = machines.node.devices
    parts = {1 << power for power in range(size.bit_length()) if 1 << power < size}
    nodes = {1 << power for power in range(15)}
    if finer:
        nodes |= {3 << power for power in range(15)}
    counts = parts | {size * each for each in nodes} | {machines.devices}
    return sorted(each for each in counts if each <= min(most_devices, machines.devices))


def _survey(search: _Search, machines: ClusterSpec, ways: Sequence[Offer], goals: Goals, *, most_devices: int) -> None:
    """Adds all options on one kind of device."""
    counts = device_counts(machines, most_devices, finer=goals.deadline_s is not None)
    try:
        run = search.on(machines)
        compared = compare(run, counts, thorough=False, memo=search.memo)
    except RecipeError as error:
        kind: Literal["device", "precision"] = "precision" if error.field == "precision" else "device"
        search.refused.append(Refusal(kind=kind, name=machines.device.name, reason=error.what))
        return
    search.count(compared.pruned)
    if not compared.fits.any():
        reasons = [each.reason for each in compared.pruned if each.rule in {"states", "activations"}]
        reason = reasons[-1] if reasons else f"no layout divides model and batch over up to {most_devices:,} devices"
        search.refused.append(Refusal(kind="device", name=machines.device.name, reason=reason))
        return
    # Places of the fastest layout of each number of devices.
    order = np.lexsort((compared.rank_s, compared.layouts.devices))
    _, firsts = np.unique(compared.layouts.devices[order], return_index=True)
    best = order[firsts]
    best = best[np.isfinite(compared.step_s[best])]
    fastest = forecast(run, compared.layouts.take(best), CATALOGUE)
    for offer in ways:
        search.options += _bought(search, run, fastest, offer)


def _bought(search: _Search, run: RunSpec, fastest: Forecast, offer: Offer) -> list[Option]:
    """Returns the fastest layout of each number of devices, bought so."""
    cost = run_cost(
        fastest,
        run,
        total_tokens=run.workload.total_tokens,
        usd_per_device_hour=offer.usd_per_device_hour,
        settings=RunSettings(spot_provider=offer.spot_provider, billing=billing_of(offer.price)),
    )
    ends = cost.seconds < ENDLESS * (cost.parts.steps_s + cost.parts.evaluation_s) + cost.parts.start_s
    places = np.flatnonzero((fastest.layouts.devices % offer.whole == 0) & ends)
    if not ends.all():
        name, reason = f"{run.cluster.device.name} {offer.kind}", "interruptions come faster than work is kept"
        search.refused.append(Refusal(kind="price", name=name, reason=reason, count=int(np.sum(~ends))))
    return [_option(run, fastest, cost, offer, int(place)) for place in places]


def _option(run: RunSpec, fastest: Forecast, cost: RunCost, offer: Offer, place: int) -> Option:
    machines, (parallel, recompute) = run.cluster, parallel_plan(fastest.layouts, place)
    devices = int(fastest.layouts.devices[place])

    def at(values: np.ndarray | None) -> float | None:
        return None if values is None else float(values[place])

    return Option(
        device=machines.device.name,
        devices=devices,
        nodes=max(1, devices // machines.node.devices),
        parallel=parallel,
        recompute=recompute,
        precision=run.workload.precision,
        provider=offer.provider,
        price_kind=offer.kind,
        price=offer.price,
        seconds=float(cost.seconds[place]),
        low_s=float(cost.low_s[place]),
        high_s=float(cost.high_s[place]),
        usd=at(cost.usd),
        usd_low=at(cost.usd_low),
        usd_high=at(cost.usd_high),
        step_s=float(fastest.step_s[place]),
        mfu=float(fastest.mfu[place]),
        memory_bytes=float(fastest.memory.total_bytes(machines.device)[place]),
        memory_available_bytes=usable_bytes(machines.device),
        kwh=at(cost.kwh),
        interruptions=float(cost.parts.interruptions[place]),
        checkpoint_interval_s=float(cost.parts.checkpoint_interval_s[place]),
        unsure=bool(fastest.memory.uncertain(machines.device)[place]),
    )


def _ranked(search: _Search, goals: Goals) -> Recommendation:
    usd = [np.nan if option.usd is None or option.doubt else option.usd for option in search.options]
    front = pareto_front([option.seconds for option in search.options], usd)
    options = [replace(each, front=True) if on else each for each, on in zip(search.options, front, strict=True)]
    met = sorted((option for option in options if goals.met_by(option)), key=goals.order)
    refused = [*sorted(search.refused, key=lambda each: (each.kind, each.name)), *_missed(options, goals)]
    refused += [
        Refusal(kind="layout", name=each.rule, reason=each.reason, count=each.layouts) for each in search.rules.values()
    ]
    near = () if met and (goals == Goals() or not met[0].doubt) else closest(options, goals)
    return Recommendation(options=tuple(met), closest=near, refused=tuple(refused), goals=goals)


def pareto_front(seconds: ArrayLike, usd: ArrayLike) -> NDArray[np.bool_]:
    """Returns True [P] for points on the front: no other is as fast and as cheap, and better in one of the two.

    Of equal points the first is taken. A point without a price (NaN) or without an end (infinite) is never on it.
    """
    time, cost = np.asarray(seconds, dtype=np.float64), np.asarray(usd, dtype=np.float64)
    places = np.flatnonzero(np.isfinite(time) & np.isfinite(cost))
    ordered = places[np.lexsort((cost[places], time[places]))]
    front = np.zeros(len(time), dtype=np.bool_)
    if len(ordered):
        # Slower points are on the front only if they are cheaper than all faster ones.
        least = np.minimum.accumulate(cost[ordered])
        front[ordered] = np.concatenate([[True], cost[ordered][1:] < least[:-1]])
    return front


def _missed(options: Sequence[Option], goals: Goals) -> list[Refusal]:
    """Returns the numbers of ways that are too late or too dear."""
    refused = []
    seconds, usd = [each.seconds for each in options], [each.usd for each in options if each.usd is not None]
    for name, what, limit, values in (
        ("too late", "deadline", goals.deadline_s, seconds),
        ("too dear", "budget", goals.budget_usd, usd),
    ):
        over = [value / limit for value in values if value > limit] if limit is not None else []
        if over:
            reason = f"{min(over):.2f} to {max(over):,.1f} times the {what}"
            refused.append(Refusal(kind="goal", name=name, reason=reason, count=len(over)))
    own = min((each for each in options if each.provider == OWN), key=_seconds, default=None)
    if own is not None and not goals.met_by(own):
        reason = f"at its fastest {format_seconds(own.seconds)}, {format_usd(own.usd or 0.0)}"
        refused.insert(0, Refusal(kind="goal", name=f"own {own.cluster}", reason=reason))
    return refused


def closest(options: Sequence[Option], goals: Goals) -> tuple[Option, ...]:
    """Returns the nearest ways where nothing meets the goals.

    That is the cheapest in time (else the fastest), and the fastest within the budget (else the cheapest).
    """
    priced = [option for option in options if option.usd is not None]
    priced = [option for option in priced if not option.doubt] or priced
    if not priced:
        return tuple(sorted(options, key=lambda option: option.seconds)[:1])
    in_time = [each for each in priced if goals.deadline_s is None or each.seconds <= goals.deadline_s]
    within = [each for each in priced if goals.budget_usd is None or (each.usd or 0.0) <= goals.budget_usd]
    cheapest = min(in_time, key=_dollars) if in_time else min(priced, key=_seconds)
    fastest = min(within, key=_seconds) if within else min(priced, key=_dollars)
    return (cheapest,) if cheapest == fastest else (cheapest, fastest)


def _seconds(option: Option) -> tuple[float, float]:
    return option.seconds, option.usd or 0.0


def _dollars(option: Option) -> tuple[float, float]:
    return option.usd or 0.0, option.seconds
