"""What to run a training on: every device, number of nodes, cloud and kind of price, by time and dollars per run.

For each device one forecast holds all layouts of all numbers of nodes and batches: links are the same, only the degrees
differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from trainwright.core.errors import RecipeError, about
from trainwright.hardware.catalogue.devices import device as catalogue_device
from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.catalogue.nodes import cluster, node_size
from trainwright.hardware.prices.clouds import CONTRACT_S
from trainwright.hardware.prices.networks import why_single
from trainwright.hardware.prices.price_list import PriceList, given_price, price_list
from trainwright.planner.cost.keeping import Kept, egress_usd, kept_of, storage_of, storage_usd
from trainwright.planner.cost.run_cost import RunCost, RunSettings, run_cost
from trainwright.planner.cost.scaling_laws import batch_price, held_rate_s
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.counts.parameters import active_parameters
from trainwright.planner.counts.work import usable_precision
from trainwright.planner.forecast.forecast import Forecast
from trainwright.planner.forecast.memory.table import usable_bytes
from trainwright.planner.forecast.networks import counted
from trainwright.planner.search.candidates import parallel_plan
from trainwright.planner.search.layouts import compare, too_large
from trainwright.planner.search.memo import Memo
from trainwright.planner.search.offers import GIVEN, PRICE_KINDS, Offer, offers, owned
from trainwright.planner.search.ranking import WASTE, Goals, Option, Recommendation, Refusal, ranked
from trainwright.planner.search.table import Pruned
from trainwright.spec.device import ClusterSpec, PriceKind
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Precision, Workload

MOST_DEVICES = 16_384
PROCESSORS = "processors"
"""Devices that are left out unless they are named."""
FEW_SEQUENCES = 4
"""Sequences of a batch for each device at which twice the batch gains nothing more."""
ENDLESS = 10.0
"""Wall-clock over the own time of steps and validations beyond which a run is no way to train."""


@dataclass(slots=True)
class _Search:
    """What is asked, and what was found on the way."""

    runs: tuple[RunSpec, ...]
    """The run, and the same one with larger batches, ascending."""
    precision: Precision | None
    layout: FixedLayout
    frugal: bool
    data_bytes: float | None
    flops_per_s: float | None
    options: list[Option] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    rules: dict[str, Pruned] = field(default_factory=dict)
    memo: Memo = field(default_factory=Memo)

    @property
    def steps(self) -> list[int]:
        """Returns the steps of each run."""
        return [run.workload.steps for run in self.runs]

    @property
    def tokens(self) -> list[int]:
        """Returns the tokens of each run."""
        return [run.workload.total_tokens for run in self.runs]

    def on(self, machines: ClusterSpec) -> list[RunSpec]:
        """Returns the runs on one cluster, in the precision asked for, else in the one that its device takes."""
        precision = usable_precision(machines.device, self.precision, self.runs[0].stack)
        changed: dict[str, Any] = {"precision": precision}
        if "activation_offload" in self.runs[0].stack.usual:  # by itself it does so where it can
            changed["activation_offload"] = machines.node.bus is not None and self.runs[0].workload.activation_offload
        return [replace(run, cluster=machines, workload=replace(run.workload, **changed)) for run in self.runs]

    def refuse(self, kind: Literal["device", "precision", "price"], name: str, reason: str, count: int = 1) -> None:
        """Adds what was left out for a reason."""
        self.refused.append(Refusal(kind=kind, name=name, reason=reason, count=count))

    def all_refused(self) -> list[Refusal]:
        """Returns what was left out: devices, precisions and prices by name, then the classes of layouts."""
        rules = self.rules.values()
        layouts = [Refusal(kind="layout", name=rule.rule, reason=rule.reason, count=rule.layouts) for rule in rules]
        return [*sorted(self.refused, key=lambda each: (each.kind, each.name)), *layouts]

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
    regions: Sequence[str] | None = None,
    have: Sequence[ClusterSpec] = (),
    have_usd_per_device_hour: Mapping[str, float] | None = None,
    have_idle_usd_per_device_hour: Mapping[str, float] | None = None,
    given: Mapping[str, float] | None = None,
    goals: Goals | None = None,
    price_kinds: Sequence[PriceKind] = PRICE_KINDS,
    most_devices: int | None = None,
    layout: FixedLayout | None = None,
    batches: Sequence[int] = (),
    frugal: bool = False,
    data_bytes: float | None = None,
    flops_per_s: float | None = None,
    prices: PriceList | None = None,
) -> Recommendation:
    """Returns all ways to do a run, ranked.

    Args:
        run: what is trained, with which software; each cluster takes the place of its own; layouts divide its batches.
        precision: of all devices; None: bf16, fp16 or fp32, the first that a device has.
        devices: names of the catalogue; None: all of it but processors.
        clouds: only prices of these.
        regions: only prices in these: where data may lie.
        have: clusters that are there already, beside what can be rented.
        have_usd_per_device_hour: what an hour of those costs by the device's name; else nothing.
        have_idle_usd_per_device_hour: the same of those that the run leaves idle.
        given: dollars for a device and hour by its name, in place of the price lists'.
        goals: a budget and a deadline.
        price_kinds: on demand, spot (with expected interruptions), reserved.
        most_devices: of one run; None: ``MOST_DEVICES``, and one node where adapters are trained.
        layout: what is fixed of it.
        frugal: of layouts about as fast, that which needs least memory is taken.
        batches: tokens of larger batches that are tried too, each with the tokens that it needs (``batch_price``).
        data_bytes: of the data set in storage; None: of the run's tokens.
        flops_per_s: a rate of each device, at which each way says its time, too.
        prices: the price lists, unless given.

    Raises:
        RecipeError: an unknown device or cloud, or a given price of a device that is not looked at.
    """
    goals, prices, given = goals or Goals(), prices or price_list(), given or {}
    search = _Search(_batched(run, batches), precision, layout or FixedLayout(), frugal, data_bytes, flops_per_s)
    rented = _all_read(given, _largest(search, devices, most_devices), have)
    search.memo = Memo.of(replace(run, cluster=each) for each in (*have, *rented))
    _survey_owned(search, have, have_usd_per_device_hour or {}, have_idle_usd_per_device_hour or {}, goals)
    where = {"clouds": clouds, "regions": regions}
    for machines in rented:
        name, size = machines.device.name, machines.node.devices
        bought = _given(given, name) or offers(name, prices, node_devices=size, kinds=price_kinds, **where)
        if (clouds or regions) and not bought[0].provider:
            search.refuse("price", name, f"no known price in these {'clouds' if regions is None else 'regions'}")
        else:
            _survey(search, machines, bought, goals)
    return ranked(search.options, search.all_refused(), goals)


def _survey_owned(
    search: _Search, have: Sequence[ClusterSpec], hourly: Mapping[str, float], idle: Mapping[str, float], goals: Goals
) -> None:
    """Adds all options on what is there, by dollars an hour of a device in use and of an idle one."""
    for each in have:
        name = each.device.name
        offer = owned(each, hourly.get(name, 0.0), idle_usd_per_device_hour=idle.get(name, 0.0))
        _survey(search, each, [offer], goals, thorough=True)


def _all_read(
    usd_by_device: Mapping[str, float], rented: Sequence[ClusterSpec], have: Sequence[ClusterSpec]
) -> Sequence[ClusterSpec]:
    """Returns what is rented, where every price is of a device of it.

    Raises:
        RecipeError: says which, and where it belongs.
    """
    names = {each.device.name for each in rented}
    unread = [name for name in usd_by_device if name not in names]
    if not unread:
        return rented
    owned_too = unread[0] in {each.device.name for each in have}
    fix = "what is there costs `have_usd_per_device_hour`" if owned_too else "name it in `devices` too"
    raise RecipeError("a price of a device that is not looked at", field="price", seen=", ".join(unread), fix=fix)


def _given(usd_by_device: Mapping[str, float], name: str) -> tuple[Offer, ...]:
    """Returns the offer at a price that the user gives; none where none is given."""
    usd = usd_by_device.get(name)
    if usd is None:
        return ()
    price = given_price(name, usd, "on_demand")
    return (Offer(provider=GIVEN, kind=None, usd_per_device_hour=usd, price=price),)


def _batched(run: RunSpec, batches: Sequence[int]) -> tuple[RunSpec, ...]:
    """Returns the run, and the same one with each larger batch, ascending."""
    return (run, *(_with_batch(run, each) for each in sorted(batches)))


def _with_batch(run: RunSpec, batch_tokens: int) -> RunSpec:
    """Returns the run with a larger batch and as many tokens as that needs for the same loss."""
    workload, tokens = run.workload, run.workload.total_tokens
    dearer = batch_price(batch_tokens, tokens) / batch_price(workload.batch_tokens, tokens)
    steps = math.ceil(tokens * max(1.0, float(dearer)) / batch_tokens)
    return replace(run, workload=replace(workload, batch_tokens=batch_tokens, steps=steps))


def largest_cluster(name: str, workload: Workload, most_devices: int | None = None) -> ClusterSpec:
    """Returns the largest cluster of a device that is looked at: of ``MOST_DEVICES``, a node for adapters."""
    size = node_size(name)
    most = most_devices or (MOST_DEVICES if workload.adapter is None else size)
    return cluster(f"{most}x{name}" if most < size else f"{most // size}x{size}x{name}")


def _largest(search: _Search, devices: Sequence[str] | None, most_devices: int | None) -> list[ClusterSpec]:
    """Returns the largest cluster of each device, sorted by what their layouts need alike."""
    run = search.runs[0]
    every = (catalogue_device(name) for name in (device_names() if devices is None else devices))
    wanted = {each.name: each for each in every}
    if devices is None:  # processors are many, slow, and in no price list: those that are asked for alone
        processors = [name for name, each in wanted.items() if each.kind == "cpu"]
        search.refuse("device", PROCESSORS, "looked at where `devices` or `have` names them", len(processors))
        wanted = {name: each for name, each in wanted.items() if name not in processors}
    with about("most_devices"):
        clusters = [largest_cluster(name, run.workload, most_devices) for name in wanted]
    runs, libraries = [replace(run, cluster=each) for each in clusters], counted(run.model).library_bytes
    runs.sort(key=lambda run: (run.cluster.scale_up_devices, run.cluster.node.devices, libraries(run)))
    return [run.cluster for run in runs]


def device_counts(machines: ClusterSpec, *, finer: bool = False) -> list[int]:
    """Returns parts of a node and whole nodes in powers of two, and all of ``machines``.

    ``finer`` adds three halves of each whole number of nodes, where a deadline lies between two powers of two.
    """
    size = machines.node.devices
    parts = {1 << power for power in range(size.bit_length()) if 1 << power < size}
    nodes = {1 << power for power in range(15)}
    if finer:
        nodes |= {3 << power for power in range(15)}
    counts = parts | {size * each for each in nodes} | {machines.devices}
    return sorted(each for each in counts if each <= machines.devices)


def _survey(
    search: _Search, machines: ClusterSpec, ways: Sequence[Offer], goals: Goals, *, thorough: bool = False
) -> None:
    """Adds all options on one kind of device; ``thorough``: of what is there, as a plan looks for them."""
    name, counts = machines.device.name, device_counts(machines, finer=goals.deadline_s is not None)
    try:
        run, *larger = search.on(machines)
        compared = compare(
            *(run, counts),
            thorough=thorough,
            layout=search.layout,
            frugal=search.frugal,
            larger=_worth(run, larger, counts),
            memo=search.memo,
        )
    except RecipeError as error:
        search.refuse("precision" if error.field == "precision" else "device", name, error.what)
        return
    search.count(compared.pruned)
    if not compared.fits.any():
        reasons = [each.reason for each in compared.pruned if each.rule in {"states", "activations"}]
        wanted = " as asked" if search.layout else ""
        nothing = f"no layout{wanted} divides model and batch over up to {machines.devices:,} devices"
        search.refuse("device", name, reasons[-1] if reasons else nothing)
        return
    sequences = compared.layouts.batch_sequences
    steps = np.select([sequences == each.workload.batch_sequences for each in (run, *larger)], search.steps)
    best = compared.best(steps.astype(np.float64))
    fastest, held = compared.forecast(best), kept_of(run, data_bytes=search.data_bytes)
    for offer in ways:
        search.options += _bought(search, fastest, held, offer, goals)


def _worth(run: RunSpec, larger: Sequence[RunSpec], counts: Sequence[int]) -> list[tuple[Workload, Sequence[int]]]:
    """Returns larger batches with the numbers of devices that the one before leaves idle."""
    found: list[tuple[Workload, Sequence[int]]] = []
    for smaller, each in pairwise((run, *larger)):
        counts = [count for count in counts if count * FEW_SEQUENCES > smaller.workload.batch_sequences]
        if counts:
            found.append((each.workload, counts))
    return found


def _bought(search: _Search, fastest: Forecast, held: Kept, offer: Offer, goals: Goals) -> list[Option]:
    """Returns the fastest layout of each number of devices, bought so; ``held`` is what its run keeps."""
    run, billing, devices = fastest.run, offer.billing, fastest.layouts.devices
    hourly = offer.hourly_usd(devices)
    sequences = fastest.layouts.batch_sequences
    tokens = np.select([sequences == each.workload.batch_sequences for each in search.runs], search.tokens)
    cost = run_cost(
        fastest,
        run,
        total_tokens=tokens.astype(np.float64),
        usd_per_device_hour=hourly,
        settings=RunSettings(spot_provider=offer.spot_provider, billing=billing),
    )
    ends = cost.seconds < ENDLESS * (cost.parts.steps_s + cost.parts.evaluation_s) + cost.parts.start_s
    there = np.ones_like(ends) if billing is None else devices <= billing.most_devices
    used = np.ones_like(ends)
    if billing is not None and goals.are_open:
        paid = billing.billed_s(cost.seconds, devices)
        used = (paid < CONTRACT_S) | (paid <= WASTE * cost.seconds)
    name = f"{run.cluster.device.name} {offer.kind}"
    alone = "" if offer.kind is None else why_single(offer.provider, run.cluster)
    joined = (devices <= run.cluster.node.devices) | (not alone)
    for kept, reason in (
        (ends, "interruptions come faster than work is kept"),
        (there, "more devices than are to be had at once"),
        (used, "a contract or a term of which most would be paid for nothing"),
        (joined, alone),
    ):
        if not kept.all():
            search.refuse("price", name, reason, int(np.sum(~kept)))
    most = np.inf if offer.devices is None else offer.devices
    places = np.flatnonzero((devices % offer.whole == 0) & (devices <= most) & ends & there & used & joined)
    facts = storage_of(offer.price)
    rate, active, trained = search.flops_per_s, active_parameters(run.model), cost.steps * fastest.step_tokens
    columns = {
        **_columns(fastest, cost),
        "usd_per_device_hour": hourly,
        "storage_usd": storage_usd(held, cost.seconds, facts),
        "at_rate_s": None if rate is None else held_rate_s(active, trained, devices=devices, flops_per_s=rate),
    }
    nothing, egress = (None,) * len(places), egress_usd(held, facts)
    values = (nothing if each is None else each[places].tolist() for each in columns.values())
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))
    return [
        _option(fastest, offer, int(place), row, egress_usd=egress) for place, row in zip(places, rows, strict=True)
    ]


def _columns(fastest: Forecast, cost: RunCost) -> dict[str, np.ndarray | None]:
    """Returns [L] what an option says of each layout, by its names."""
    run, layouts = fastest.run, fastest.layouts
    device = run.cluster.device
    batch_tokens = layouts.batch_sequences * run.workload.sequence_tokens
    return {
        "batch_tokens": batch_tokens.astype(np.intp),
        "tokens": (cost.steps * fastest.step_tokens).astype(np.intp),
        "seconds": cost.seconds,
        "low_s": cost.low_s,
        "high_s": cost.high_s,
        "usd": cost.usd,
        "usd_low": cost.usd_low,
        "usd_high": cost.usd_high,
        "step_s": fastest.step_s,
        "mfu": fastest.mfu,
        "memory_bytes": fastest.memory.total_bytes(device),
        "kwh": cost.kwh,
        "interruptions": cost.parts.interruptions,
        "checkpoint_interval_s": cost.parts.checkpoint_interval_s,
        "unsure": fastest.memory.uncertain(device),
        "billed_s": cost.billed_s,
    }


def _option(fastest: Forecast, offer: Offer, place: int, row: Mapping[str, Any], *, egress_usd: float | None) -> Option:
    machines, (parallel, recompute) = fastest.run.cluster, parallel_plan(fastest.layouts, place)
    devices = int(fastest.layouts.devices[place])
    return Option(
        device=machines.device.name,
        devices=devices,
        nodes=max(1, devices // machines.node.devices),
        parallel=parallel,
        recompute=recompute,
        precision=fastest.run.workload.precision,
        provider=offer.provider,
        price_kind=offer.kind,
        price=offer.price,
        egress_usd=egress_usd,
        memory_available_bytes=usable_bytes(machines.device),
        **row,
    )
