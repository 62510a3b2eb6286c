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
from trainwright.hardware.catalogue.support import trains_alone
from trainwright.hardware.prices.price_list import PriceList, given_price, price_list
from trainwright.planner.cost.batches import critical_batch
from trainwright.planner.cost.keeping import kept_of
from trainwright.planner.counts.layouts import FixedLayout, Numbers
from trainwright.planner.counts.work import usable_precision
from trainwright.planner.forecast.networks import counted
from trainwright.planner.search.bought import bought
from trainwright.planner.search.layouts import Compared, compare, too_large
from trainwright.planner.search.memo import Memo
from trainwright.planner.search.offers import GIVEN, PRICE_KINDS, Offer, offers, owned
from trainwright.planner.search.ranking import Goals, Option, Recommendation, Refusal, ranked
from trainwright.planner.search.table import Pruned
from trainwright.spec.device import ClusterSpec, PriceKind
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Precision, Workload

MOST_DEVICES = 16_384
PROCESSORS = "processors"
"""Devices that are left out unless they are named."""
FEW_SEQUENCES, FEW_TOKENS, FEW_IMAGES = 4, 1 << 15, 128
"""Of a batch for each device, at which twice the batch gains nothing more: whichever are more sequences."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Numbers of devices on which one and the same run is looked at: with ``runs`` in larger batches, ascending."""

    runs: tuple[RunSpec, ...]
    layout: FixedLayout
    counts: Sequence[int]

    def of_batch(self, sequences: Numbers, values: Sequence[int]) -> Numbers:
        """Returns [L] of each layout's batch the value that its run has."""
        return np.select([sequences == each.workload.batch_sequences for each in self.runs], values).astype(np.float64)


@dataclass(slots=True)
class _Search:
    """What is asked, and what was found on the way."""

    run: RunSpec
    whole: _Part
    """The run on all numbers of devices, and the same one with larger batches."""
    alone: _Part | None
    precision: Precision | None
    frugal: bool
    data_bytes: float | None
    flops_per_s: float | None
    options: list[Option] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    rules: dict[str, Pruned] = field(default_factory=dict)
    memo: Memo = field(default_factory=Memo)

    def parts(self, machines: ClusterSpec, counts: Sequence[int]) -> list[_Part]:
        """Returns the runs that are looked at on so many devices: one device's apart where its software does more."""
        alone = self.alone if any(trains_alone(machines, count) for count in counts) else None
        parts = [] if alone is None else [alone]
        rest = counts if alone is None else [count for count in counts if count > 1]
        return [*parts, *([replace(self.whole, counts=rest)] if rest else [])]

    def on(self, machines: ClusterSpec, part: _Part) -> list[RunSpec]:
        """Returns the runs on one cluster, in the precision asked for, else in the one that its device takes."""
        first = part.runs[0]
        precision = usable_precision(machines.device, self.precision, first.stack)
        changed: dict[str, Any] = {"precision": precision}
        if "activation_offload" in first.stack.usual:  # by itself it does so where it can
            changed["activation_offload"] = machines.node.bus is not None and first.workload.activation_offload
        return [replace(run, cluster=machines, workload=replace(run.workload, **changed)) for run in part.runs]

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
    alone: tuple[RunSpec, FixedLayout] | None = None,
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
        alone: the run, and what is fixed of its layout, as its software does it on one device; None: as on several.
        frugal: of layouts about as fast, that which needs least memory is taken.
        batches: tokens of larger batches that are tried too, each with the tokens that it needs.
        data_bytes: of the data set in storage; None: of the run's tokens.
        flops_per_s: a rate of each device, at which each way says its time, too.
        prices: the price lists, unless given.

    Raises:
        RecipeError: an unknown device or cloud, or a given price of a device that is not looked at.
    """
    goals, prices, given = goals or Goals(), prices or price_list(), given or {}
    parts = _parts(run, batches, layout or FixedLayout(), alone)
    search = _Search(run, *parts, precision, frugal, data_bytes, flops_per_s)
    rented = _all_read(given, _largest(search, devices, most_devices), have)
    search.memo = Memo.of(replace(run, cluster=each) for each in (*have, *rented))
    _survey_owned(search, have, have_usd_per_device_hour or {}, have_idle_usd_per_device_hour or {}, goals)
    where = {"clouds": clouds, "regions": regions}
    for machines in rented:
        name, size = machines.device.name, machines.node.devices
        ways = _given(given, name) or offers(name, prices, node_devices=size, kinds=price_kinds, **where)
        _survey_rented(search, machines, ways, goals, where)
    return ranked(search.options, search.all_refused(), goals)


def _survey_rented(
    search: _Search,
    machines: ClusterSpec,
    ways: Sequence[Offer],
    goals: Goals,
    where: Mapping[str, Sequence[str] | None],
) -> None:
    """Adds all options on what can be rented; without a known price nothing where clouds or regions are asked for."""
    if ways[0].provider or not any(where.values()):
        _survey(search, machines, ways, goals)
        return
    places = "clouds" if where["regions"] is None else "regions"
    search.refuse("price", machines.device.name, f"no known price in these {places}")


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


def _parts(
    run: RunSpec, batches: Sequence[int], layout: FixedLayout, alone: tuple[RunSpec, FixedLayout] | None
) -> tuple[_Part, _Part | None]:
    """Returns the run on several devices, with its larger batches, and on one where that is another."""
    return _Part(_batched(run, batches), layout, ()), None if alone is None else _Part((alone[0],), alone[1], (1,))


def _with_batch(run: RunSpec, batch_tokens: int) -> RunSpec:
    """Returns the run with a larger batch and as many tokens as that needs for the same loss."""
    workload, tokens = run.workload, run.workload.total_tokens
    dearer = critical_batch(run.model, tokens).dearer(batch_tokens, than=workload.batch_tokens)
    steps = math.ceil(tokens * max(1.0, dearer) / batch_tokens)
    return replace(run, workload=replace(workload, batch_tokens=batch_tokens, steps=steps))


def largest_cluster(name: str, workload: Workload, most_devices: int | None = None) -> ClusterSpec:
    """Returns the largest cluster of a device that is looked at: of ``MOST_DEVICES``, a node for adapters."""
    size = node_size(name)
    most = most_devices or (MOST_DEVICES if workload.adapter is None else size)
    return cluster(f"{most}x{name}" if most < size else f"{most // size}x{size}x{name}")


def _largest(search: _Search, devices: Sequence[str] | None, most_devices: int | None) -> list[ClusterSpec]:
    """Returns the largest cluster of each device, sorted by what their layouts need alike."""
    run = search.run
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
    parts = search.parts(machines, counts)
    left_out: list[tuple[Literal["device", "precision"], str]] = []
    for part in parts:
        try:
            run, *larger = search.on(machines, part)
            compared = compare(
                *(run, part.counts),
                thorough=thorough,
                layout=part.layout,
                frugal=search.frugal,
                larger=_worth(run, larger, part.counts),
                memo=None if part is search.alone else search.memo,
            )
        except RecipeError as error:
            left_out.append(("precision" if error.field == "precision" else "device", error.what))
            continue
        search.count(compared.pruned)
        if not compared.fits.any():
            left_out.append(("device", _why_unfit(compared, part, machines)))
            continue
        steps = part.of_batch(compared.layouts.batch_sequences, [each.workload.steps for each in part.runs])
        fastest = compared.forecast(compared.best(steps))
        tokens = part.of_batch(fastest.layouts.batch_sequences, [each.workload.total_tokens for each in part.runs])
        held = kept_of(run, data_bytes=search.data_bytes)
        for offer in ways:
            search.options += bought(
                *(fastest, offer, held),
                tokens=tokens,
                goals=goals,
                refuse=lambda *unsold: search.refuse("price", *unsold),
                flops_per_s=search.flops_per_s,
            )
    if len(left_out) == len(parts):
        kind, reason = left_out[-1]
        search.refuse(kind, name, reason)


def _why_unfit(compared: Compared, part: _Part, machines: ClusterSpec) -> str:
    """Returns why a run fits on no number of a cluster's devices."""
    reasons = [each.reason for each in compared.pruned if each.rule in {"states", "activations"}]
    wanted = " as asked" if part.layout else ""
    nothing = f"no layout{wanted} divides model and batch over up to {machines.devices:,} devices"
    return reasons[-1] if reasons else nothing


def _worth(run: RunSpec, larger: Sequence[RunSpec], counts: Sequence[int]) -> list[tuple[Workload, Sequence[int]]]:
    """Returns larger batches with the numbers of devices that the one before leaves idle."""
    found: list[tuple[Workload, Sequence[int]]] = []
    filling = FEW_IMAGES if run.model.unit == "images" else FEW_TOKENS // run.workload.sequence_tokens
    enough = max(FEW_SEQUENCES, filling)
    for smaller, each in pairwise((run, *larger)):
        counts = [count for count in counts if count * enough > smaller.workload.batch_sequences]
        if counts:
            found.append((each.workload, counts))
    return found
