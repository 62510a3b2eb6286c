"""Assumptions that answers of several kinds rest on: a key is one quantity, in one unit, in each of them."""

from __future__ import annotations

import math

import numpy as np

from trainwright.hardware.catalogue.accelerators import NEVER_RUN, NEVER_RUN_KEY, accelerators
from trainwright.hardware.catalogue.efficiency import generation, read_efficiency
from trainwright.hardware.catalogue.stacks import OURS
from trainwright.hardware.prices.snapshot import not_before
from trainwright.planner.cost.goodput import DEVICE_MTBF_S, HOUR_S, SPOT_NODE_MTBF_S, SPOT_NOTICE_S, SPOT_OTHER_MTBF_S
from trainwright.planner.rates.catalogue import beyond, doubt_of_generation, has_own_runs, is_apart
from trainwright.spec.device import PLATFORMS, DeviceSpec, Price
from trainwright.spec.plan import Assumption, Origin
from trainwright.spec.run import RunSpec


def of_device(device: DeviceSpec) -> list[Assumption]:
    """Returns a catalogued device's memory, and the rate at which it is read."""
    memory, rate = device.memory_bytes / 1e9, device.bytes_per_s / 1e9
    return [
        Assumption("memory of a device", memory, "GB", "catalog", device.source, key="memory"),
        Assumption("memory bandwidth", rate, "GB/s", "catalog", device.source, key="bandwidth"),
    ]


def of_accelerator(device: DeviceSpec) -> tuple[Assumption, ...]:
    """Returns that this project's trainer was never run on such a device, where that is so."""
    record = next((each for each in accelerators() if each.kind == device.kind), None)
    if record is None:
        name, source = f"training on {device.name}", f"this trainer has no record of {PLATFORMS[device.kind]} devices"
        return (Assumption(name, NEVER_RUN, "", "default", source, key=NEVER_RUN_KEY),)
    if record.verified:
        return ()
    return (Assumption(f"training on {record.title}s", record.standing, "", "default", "make gpu", key=NEVER_RUN_KEY),)


def of_trainer(run: RunSpec) -> tuple[Assumption, ...]:
    """Returns the same of a run's devices, where this project's trainer runs it: it says nothing of other software."""
    return of_accelerator(run.cluster.device) if run.stack.name == OURS else ()


FEW_ROWS = 30
"""Published runs on a generation of devices below which its rates are mostly what they were before any was seen."""
THIN = "generation"
"""The key of the assumption that few or no runs of a kind stand behind an answer."""
OTHER_PROGRAMS = "other_programs"
"""The key of that which says that a machine was measured beside other programs."""


def of_measured(run: RunSpec) -> Assumption:
    """Returns how many published runs stand behind the rates of a run's devices, and what widens its range."""
    general, kind, software = read_efficiency(), generation(run.cluster.device), run.stack
    rows, name = general.rows.get(kind, 0), f"measured runs on {run.cluster.device.name} and its like"
    doubt = doubt_of_generation(run, general)
    wider = _wider(doubt)
    further = float(beyond(run, np.asarray(run.workload.batch_tokens / run.cluster.devices), general))
    unlike = f"size, sequences or steps beyond those of published runs: {_wider(further)}" if further > 0.05 else ""
    if kind not in general.seen:
        source = "; ".join(filter(None, (f"never measured: {wider}", unlike)))
        return Assumption(name, 0.0, "", "default", source, key=THIN)
    theirs = "" if software.time_of == software.name else f", whose rates are those of {software.time_of!r}"
    unseen = doubt > 0 and (is_apart(run) or rows < FEW_ROWS)
    own = has_own_runs(run)
    of_it = f"{'few' if own else 'none'} with software {software.name!r}{theirs}: {wider}" if unseen else ""
    source = "; ".join(filter(None, (of_it, unlike, f"of {sum(general.rows.values()):,} that all rates are fitted to")))
    return Assumption(name, float(rows), "", "catalog", source, key=THIN if unseen or rows < FEW_ROWS else "measured")


def _wider(deviation: float) -> str:
    return f"the range is wider, by a factor of {math.exp(deviation):.2f} (one deviation)"


def of_price(price: Price) -> Assumption:
    """Returns what an hour of a device costs: as given, or as a price list had it."""
    origin: Origin = "given" if price.source == "given" else "catalog"
    where = ", ".join(filter(None, (f"{price.provider} {price.region}".strip(), rented(price), written(price))))
    source = "" if origin == "given" else f"{where}; {price.source}@{price.as_of}"
    source = f"doubtful: {price.doubt}; {source}" if price.doubt else source
    name = f"price ({price.kind.replace('_', '-')})"
    return Assumption(name, price.usd_per_device_hour, "$ per device and hour", origin, source, key="price")


def rented(price: Price) -> str:
    """Returns which instance a price is of, and how much of it stands idle; empty where no list says which."""
    return f"{price.instance} ({price.idle_devices} of its devices idle)" if price.idle_devices else price.instance


def written(price: Price) -> str:
    """Returns when a price was written, in words."""
    since = not_before(price)
    return f"of {price.date}" if price.date else f"of {since} or later" if since else "of an unknown day"


def of_failures(device_mtbf_s: float = DEVICE_MTBF_S) -> Assumption:
    """Returns the mean time between failures of one device."""
    source, lives_h = "419 interruptions in 54 days on 16,384 H100 (arXiv 2407.21783)", device_mtbf_s / HOUR_S
    return Assumption("time between failures of a device", lives_h, "hours", "default", source, key="device_failures")


def of_spot_nodes(provider: str, *, of: str = "", key: str = "spot") -> Assumption:
    """Returns the mean time until a provider takes a spot node back; ``of`` names it where there are several."""
    hours = 1.0 * round(SPOT_NODE_MTBF_S.get(provider, SPOT_OTHER_MTBF_S) / HOUR_S)
    name, source = f"a spot node{of} until it is taken back", "what AWS, Azure and GCP publish; a guess for others"
    if notice := SPOT_NOTICE_S.get(provider):
        source = f"its cloud warns {notice:.0f} s before: a checkpoint written in less loses no work; {source}"
    return Assumption(name, hours, "hours", "default", source, key=key)
