"""A precision that this machine was not measured in: what stands for it, or why the device does not have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec

from trainwright.core.errors import MachineError, RecipeError
from trainwright.hardware.catalogue.devices import find_device
from trainwright.hardware.catalogue.support import QUANTISING_KINDS
from trainwright.planner.plan.machine import Here
from trainwright.planner.rates.precisions import OtherPrecision
from trainwright.spec.device import ClusterSpec, DeviceKind, DeviceSpec
from trainwright.spec.plan import Assumption
from trainwright.spec.workload import Precision, Workload

MEASURED: Mapping[Precision, tuple[Precision, ...]] = {"fp16": ("bf16", "fp32"), "tf32": ("fp32",), "fp8": ("bf16",)}
"""Precisions whose measured rates may stand for another one, best first; their activations have one size, but fp32's
are larger than fp16's, so that they err on the slow side."""
SWITCHED: Mapping[Precision, tuple[DeviceKind, ...]] = {"tf32": ("cuda", "rocm"), "fp8": ("cuda", "rocm")}
"""Kinds of devices that software has a precision for, where not all that have one: torch.set_float32_matmul_precision,
and torchao's kernels."""
FLOAT8_PACKAGE = "torchao"
SLOW = 100.0
"""How many times as long as fp32 a processor without instructions for fp16 may take: a product of two matrices of 512
rows took 75 times as long on one with AVX-512 alone (torch 2.13)."""


def check_frozen(workload: Workload, device: DeviceSpec) -> None:
    """Checks that a device has matrices in nf4, where a base is kept so.

    Raises:
        RecipeError: no library has them there.
    """
    quantised = workload.adapter is not None and workload.adapter.frozen == "nf4"
    if quantised and device.kind not in QUANTISING_KINDS:
        raise RecipeError(
            "matrices in nf4 are not multiplied on devices of kind {kind}",
            where="train.method.frozen",
            seen=f"nf4 on {device.name}",
            expected=f"one of {', '.join(QUANTISING_KINDS)}",
            fix="set train.method.frozen=auto",
            kind=device.kind,
        )


def at_precision(here: Here, precision: Precision) -> Here:
    """Returns the machine with rates for a precision.

    Raises:
        RecipeError: the device has no such arithmetic, as far as is known.
        MachineError: it has, and a package that computes in it is not installed.
    """
    device = here.cluster.device
    if precision in ("fp32", "bf16") or (here.probes is not None and precision in here.probes.dtypes()):
        return here
    if device.kind == "cpu":
        return _on_processor(here, precision)
    if device.kind not in SWITCHED.get(precision, (device.kind,)):
        raise _refusal(device, device, precision)
    if precision == "fp8" and device_has(device, precision) and find_spec(FLOAT8_PACKAGE) is None:
        raise MachineError(
            "fp8 is computed by {package}, which is not installed",
            where="train.precision",
            seen=precision,
            fix="pip install 'trainwright[float8]', or set train.precision=bf16",
            package=FLOAT8_PACKAGE,
        )
    if here.probes is None:  # the datasheet is what its rates are of
        if not device.flops_per_s.get(precision):
            raise _refusal(device, device, precision)
        return here
    known = find_device(device.name)
    if known is None or not known.flops_per_s.get(precision):
        raise _refusal(device, known, precision)
    measured = here.probes.dtypes()
    stands = next((each for each in MEASURED[precision] if each in measured), MEASURED[precision][-1])
    faster = known.flops_per_s[precision] / (known.flops_per_s.get(stands) or known.flops_per_s[precision])
    text = f"as measured in {stands}, times the datasheet's {precision} over its {stands}"
    rated = replace(device, flops_per_s={**device.flops_per_s, precision: known.flops_per_s[precision]})
    source = OtherPrecision(source=here.source, measured=stands, faster=faster)
    return _with(replace(here, cluster=_of(here, rated)), precision, source, text)


def device_has(device: DeviceSpec, precision: Precision) -> bool:
    """Returns whether a device, or the one of its name in the catalogue, has a rate for a precision."""
    known = find_device(device.name)
    return any(each is not None and bool(each.flops_per_s.get(precision)) for each in (device, known))


def _on_processor(here: Here, precision: Precision) -> Here:
    device = here.cluster.device
    if precision != "fp16":
        raise _refusal(device, device, precision)
    stands: Precision = "fp32" if here.probes is None or "fp32" in here.probes.dtypes() else "bf16"
    source = OtherPrecision(source=here.source, measured=stands, doubt=SLOW)
    return _with(here, precision, source, f"as {stands}; nobody measured how much slower it is here")


def _with(here: Here, precision: Precision, source: OtherPrecision, text: str) -> Here:
    factor, unit = round(source.faster, 3), f"x {source.measured}"
    note = Assumption(f"{precision} products", factor, unit, "default", text, key="precision_rate")
    return replace(here, source=source, rates=(*here.rates, note))


def _of(here: Here, device: DeviceSpec) -> ClusterSpec:
    return replace(here.cluster, node=replace(here.cluster.node, device=device))


def _refusal(device: DeviceSpec, known: DeviceSpec | None, precision: Precision) -> RecipeError:
    rates = () if known is None else tuple(dtype for dtype, rate in known.flops_per_s.items() if rate)
    where = f"{device.name} ({device.kind})" + (", which the catalogue does not know" if known is None else "")
    fits = [each for each in ("bf16", "fp16", "fp32") if each in rates]
    return RecipeError(
        "this device has no {precision}",
        where="train.precision",
        seen=where,
        expected=f"one of {', '.join(rates)}" if rates else "a device of the catalogue",
        fix=f"set train.precision={fits[0] if fits else 'fp32'}",
        precision=precision,
    )
