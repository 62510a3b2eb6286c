"""Options of one kind of device, bought in one way: time and dollars of its fastest layouts, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trainwright.hardware.prices.clouds import CONTRACT_S
from trainwright.hardware.prices.networks import why_single
from trainwright.planner.cost.keeping import Kept, egress_usd, storage_of, storage_usd
from trainwright.planner.cost.run_cost import RunCost, RunSettings, run_cost
from trainwright.planner.cost.scaling_laws import held_rate_s
from trainwright.planner.counts.layouts import Numbers
from trainwright.planner.counts.parameters import active_parameters
from trainwright.planner.forecast.forecast import Forecast
from trainwright.planner.forecast.memory.table import usable_bytes
from trainwright.planner.search.candidates import parallel_plan
from trainwright.planner.search.offers import Offer
from trainwright.planner.search.ranking import WASTE, Goals, Option

ENDLESS = 9.0
"""What interruptions undo, and coming back, over the time of steps and validations, beyond which nobody trains so."""
Refuse = Callable[[str, str, int], None]
"""Takes what offers of a price were left out: its name, the reason, how many."""


def bought(
    fastest: Forecast,
    offer: Offer,
    held: Kept,
    *,
    tokens: Numbers,
    goals: Goals,
    refuse: Refuse,
    flops_per_s: float | None = None,
) -> list[Option]:
    """Returns the fastest layout of each number of devices, bought so.

    Args:
        fastest: those layouts.
        offer: from whom, and at what price.
        held: what the run keeps.
        tokens: [L] what each of them trains on.
        goals: contracts most of which are paid for nothing are left out where there are none.
        refuse: is told what was left out.
        flops_per_s: a rate of each device, at which each way says its time, too.
    """
    run, billing, devices = fastest.run, offer.billing, fastest.layouts.devices
    hourly = offer.hourly_usd(devices)
    cost = run_cost(
        fastest,
        run,
        total_tokens=tokens,
        usd_per_device_hour=hourly,
        settings=RunSettings(spot_provider=offer.spot_provider, billing=billing),
    )
    places = np.flatnonzero(_sold(fastest, offer, cost, goals, refuse))
    facts = storage_of(offer.price)
    active, trained = active_parameters(run.model), cost.steps * fastest.step_tokens
    at_rate_s = None
    if flops_per_s is not None:
        at_rate_s = held_rate_s(active, trained, devices=devices, flops_per_s=flops_per_s)
    columns = {
        **_columns(fastest, cost),
        "usd_per_device_hour": hourly,
        "storage_usd": storage_usd(held, cost.seconds, facts),
        "at_rate_s": at_rate_s,
    }
    nothing, egress = (None,) * len(places), egress_usd(held, facts)
    values = (nothing if each is None else each[places].tolist() for each in columns.values())
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))
    return [
        _option(fastest, offer, int(place), row, egress_usd=egress) for place, row in zip(places, rows, strict=True)
    ]


def _sold(fastest: Forecast, offer: Offer, cost: RunCost, goals: Goals, refuse: Refuse) -> np.ndarray:
    """Returns [L] whether so many devices are sold so, and the run is one that they are bought for."""
    run, billing, devices = fastest.run, offer.billing, fastest.layouts.devices
    undone = cost.parts.lost_s + cost.parts.recovery_s
    ends = undone < ENDLESS * (cost.parts.steps_s + cost.parts.evaluation_s)
    there = np.ones_like(ends) if billing is None else devices <= billing.most_devices
    used = np.ones_like(ends)
    if billing is not None and goals.are_open:
        paid = billing.billed_s(cost.seconds, devices)
        used = (paid < CONTRACT_S) | (paid <= WASTE * cost.seconds)
    alone = "" if offer.kind is None else why_single(offer.provider, run.cluster)
    joined = (devices <= run.cluster.node.devices) | (not alone)
    for kept, reason in (
        (ends, "interruptions come faster than work is kept"),
        (there, "more devices than are to be had at once"),
        (used, "a contract or a term of which most would be paid for nothing"),
        (joined, alone),
    ):
        if not kept.all():
            refuse(f"{run.cluster.device.name} {offer.kind}", reason, int(np.sum(~kept)))
    most = np.inf if offer.devices is None else offer.devices
    return np.asarray((devices % offer.whole == 0) & (devices <= most) & ends & there & used & joined)


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
        "checkpoints": cost.parts.checkpoints,
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
