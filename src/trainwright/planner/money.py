"""The same run on a rented device: does it fit, how long, what does it cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainwright.core.units import format_bytes
from trainwright.hardware.nodes import cluster
from trainwright.hardware.prices import PriceList
from trainwright.hardware.stacks import read_stack
from trainwright.planner.predict.forecast import Forecast, forecast
from trainwright.planner.predict.layouts import Layouts
from trainwright.planner.run import run_cost
from trainwright.spec.device import ClusterSpec, DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Rental
from trainwright.spec.stack import Stack
from trainwright.spec.workload import ParallelPlan, Workload

OURS = "trainwright"
LARGEST_MICRO_BATCH = 64


def rental(model: ModelSpec, workload: Workload, spec: DeviceSpec, prices: PriceList) -> Rental:
    """The run on one such device with this trainer, at the device's cheapest checked on-demand price.

    Precision follows the device: fp32 where its datasheet has no rate for the workload's.
    """
    reason = ""
    if workload.precision not in spec.flops_per_s:
        if "fp32" not in spec.flops_per_s:
            return _unknown(spec, f"its datasheet has no {workload.precision} rate")
        reason = f"no {workload.precision} there: fp32"
        workload = replace(workload, precision="fp32")
    machine, ours = cluster(spec.name), read_stack(OURS)
    found = fastest_alone(model, workload, machine, ours)
    price = prices.cheapest(spec.name)
    run = run_cost(
        found, model, workload, machine, ours, total_tokens=workload.total_tokens,
        usd_per_device_hour=None if price is None else price.usd_per_device_hour,
    )  # fmt: skip
    fits = bool(found.fits[0])
    if not fits:
        need = format_bytes(float(found.memory.needed_bytes[0]))
        reason = f"needs {need} of {format_bytes(found.available_bytes)}"
    elif price is None:
        reason = "; ".join(filter(None, (reason, "no checked price is known")))
    return Rental(
        device=spec.name, provider=price.provider if price else "", price_kind=price.kind if price else "",
        usd_per_device_hour=price.usd_per_device_hour if price else None, fits=fits, seconds=float(run.seconds[0]),
        usd=None if run.usd is None else float(run.usd[0]), source=price.source if price else "",
        as_of=price.as_of if price else "", seconds_low=float(run.low_s[0]), seconds_high=float(run.high_s[0]),
        reason=reason,
    )  # fmt: skip


def fastest_alone(model: ModelSpec, workload: Workload, machine: ClusterSpec, software: Stack) -> Forecast:
    """The forecast [1] of the micro batch that is fastest on one device and fits; of one sequence where none does."""
    plan = ParallelPlan(compile=software.memory.kernels == "compiled")
    sizes = [each for each in range(1, LARGEST_MICRO_BATCH + 1) if workload.batch_sequences % each == 0]
    layouts = Layouts.of(
        [replace(plan, micro_batch_sequences=each) for each in sizes], [workload.recompute] * len(sizes), workload
    )
    every = forecast(model, workload, layouts, machine, software)
    place = int(np.argmin(np.where(every.fits, every.step_s, np.inf)))
    return forecast(model, workload, layouts.take(np.asarray([place])), machine, software)


def _unknown(spec: DeviceSpec, reason: str) -> Rental:
    return Rental(
        device=spec.name, provider="", price_kind="", usd_per_device_hour=None, fits=False, seconds=0.0, usd=None,
        source="", as_of="", reason=reason,
    )  # fmt: skip
