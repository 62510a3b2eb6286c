"""The same run on a rented device: does it fit, how long, what does it cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.core.units import format_bytes
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.hardware.prices.clouds import billing_of
from trainwright.hardware.prices.price_list import PriceList
from trainwright.planner.cost.run_cost import RunSettings, run_cost
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.work import usable_precision
from trainwright.planner.forecast.forecast import Forecast, forecast
from trainwright.planner.plan.layout import LARGEST_MICRO_BATCH
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.convnet import AnyModel
from trainwright.spec.device import DeviceSpec
from trainwright.spec.plan import Rental
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Precision, Workload

AtPrecision = Callable[[Precision], Workload]
"""A run's workload in a precision, with what follows from it: how a frozen base is kept."""


def rental(
    model: AnyModel, workload: Workload, spec: DeviceSpec, prices: PriceList, *, at: AtPrecision | None = None
) -> Rental:
    """Returns the run on one such device with this trainer, at the device's cheapest checked on-demand price.

    Where its precision is open, which ``at`` has it in, or its datasheet has no rate for the workload's, the one is
    taken that a plan takes which leaves it open.
    """
    reason, software = "", read_stack(OURS)
    missing = workload.precision not in spec.flops_per_s
    if at is not None or missing:
        try:
            usable = usable_precision(spec, None, software)
        except RecipeError:
            reason = f"its datasheet has no {workload.precision} rate"
            return Rental(device=spec.name, fits=False, reason=reason)
        reason = f"no {workload.precision} there: {usable}" if at is None else ""
        workload = replace(workload, precision=usable) if at is None else at(usable)
    asked = RunSpec(model=model, workload=workload, cluster=cluster(spec.name), stack=software)
    alone = fastest_alone(asked)
    price = prices.cheapest(spec.name, devices=1)
    rate = None if price is None else price.usd_per_device_hour
    settings = RunSettings(billing=billing_of(price))
    run = run_cost(alone, asked, total_tokens=workload.total_tokens, usd_per_device_hour=rate, settings=settings)
    fits = bool(alone.fits[0])
    if not fits:
        need = format_bytes(float(alone.memory.needed_bytes[0]))
        reason = f"needs {need} of {format_bytes(alone.available_bytes)}"
    elif price is None:
        reason = "; ".join(filter(None, (reason, "no checked price is known")))
    low, mid, high = (float(each[0]) for each in (run.low_s, run.seconds, run.high_s))
    rented = Rental(device=spec.name, fits=fits, seconds=mid, seconds_low=low, seconds_high=high, reason=reason)
    if price is None or run.usd is None:
        return rented
    priced = replace(rented, provider=price.provider, price_kind=price.kind, source=price.source, as_of=price.as_of)
    return replace(priced, usd_per_device_hour=rate, usd=float(run.usd[0]))


def fastest_alone(run: RunSpec) -> Forecast:
    """Returns the forecast [1] of the fastest micro batch that fits on one device; of one sequence where none does."""
    workload = run.workload
    plan = ParallelPlan(compile=run.stack.memory.kernels == "compiled")
    sizes = [each for each in range(1, LARGEST_MICRO_BATCH + 1) if workload.batch_sequences % each == 0]
    plans = [replace(plan, micro_batch_sequences=each) for each in sizes]
    layouts = Layouts.of(plans, [workload.recompute] * len(sizes), workload)
    every = forecast(run, layouts, CATALOGUE)
    place = int(np.argmin(np.where(every.fits, every.step_s, np.inf)))
    return forecast(run, layouts.take(np.asarray([place])), CATALOGUE)
