"""The same run on a rented device: does it fit, how long, what does it cost."""

from __future__ import annotations

from dataclasses import replace

from trainwright.core.units import format_bytes
from trainwright.hardware.prices import PriceList
from trainwright.planner.layout import Device, choose, micro_batches
from trainwright.planner.memory import Process
from trainwright.planner.rates import Datasheet
from trainwright.planner.step_time import validation_s
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Rental
from trainwright.spec.workload import Workload

CUDA_CONTEXT_BYTES = 600 << 20
"""What a process holds on a GPU before its first tensor: context, kernels and cuBLAS's workspace; 0.4 to 0.8 GiB are
usual."""
CUDA_TRANSIENT = 1.0
"""Temporaries of a pass, as a multiple of what one block saves for backward."""
RENTED_LOW, RENTED_HIGH = 0.7, 2.0
"""The range around a datasheet estimate: nothing was measured on that device."""


def rental(model: ModelSpec, workload: Workload, spec: DeviceSpec, prices: PriceList) -> Rental:
    """The run on one such device, at its cheapest checked on-demand price.

    Precision follows the device: fp32 where its datasheet has no bf16 rate.
    """
    reason = ""
    if workload.precision not in spec.flops_per_s:
        if "fp32" not in spec.flops_per_s:
            return _unknown(spec, f"its datasheet has no {workload.precision} rate")
        reason = f"no {workload.precision} there: fp32"
        workload = replace(workload, precision="fp32")
    device = Device(
        kind="cuda", rates=Datasheet(device=spec), memory_available_bytes=spec.memory_bytes,
        process=Process(baseline_bytes=CUDA_CONTEXT_BYTES, transient=CUDA_TRANSIENT, waste=0.0),
    )  # fmt: skip
    layout, _ = choose(model, workload, device, sequences=micro_batches(workload))
    seconds = workload.steps * layout.phases.total_s + validation_s(device.rates, model, workload, layout.batch)
    price = prices.cheapest(spec.name)
    if not layout.fits:
        need = format_bytes(layout.memory.total_bytes)
        reason = f"needs {need} of {format_bytes(spec.memory_bytes)}"
    elif price is None:
        reason = "; ".join(filter(None, (reason, "no checked price is known")))
    return Rental(
        device=spec.name, provider=price.provider if price else "", price_kind=price.kind if price else "",
        usd_per_device_hour=price.usd_per_device_hour if price else None, fits=layout.fits, seconds=seconds,
        usd=None if price is None else seconds / 3600 * price.usd_per_device_hour,
        source=price.source if price else "", as_of=price.as_of if price else "",
        seconds_low=RENTED_LOW * seconds, seconds_high=RENTED_HIGH * seconds, reason=reason,
    )  # fmt: skip


def _unknown(spec: DeviceSpec, reason: str) -> Rental:
    return Rental(
        device=spec.name, provider="", price_kind="", usd_per_device_hour=None, fits=False, seconds=0.0, usd=None,
        source="", as_of="", reason=reason,
    )  # fmt: skip
