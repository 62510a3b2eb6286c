"""The same run on a rented device: does it fit, how long, what does it cost."""

from __future__ import annotations

from dataclasses import replace

from trainwright.core.units import format_bytes
from trainwright.hardware.nodes import cluster
from trainwright.hardware.prices import PriceList
from trainwright.hardware.stacks import stack
from trainwright.planner.choose import fastest_alone
from trainwright.planner.run import run_cost
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Rental
from trainwright.spec.workload import Workload

OURS = "trainwright"


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
    machine, ours = cluster(spec.name), stack(OURS)
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


def _unknown(spec: DeviceSpec, reason: str) -> Rental:
    return Rental(
        device=spec.name, provider="", price_kind="", usd_per_device_hour=None, fits=False, seconds=0.0, usd=None,
        source="", as_of="", reason=reason,
    )  # fmt: skip
