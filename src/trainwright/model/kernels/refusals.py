"""What kernels do not run with, known before any process starts; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from trainwright.core.errors import MachineError, RecipeError
from trainwright.hardware.catalogue.devices import find_device
from trainwright.spec.attention import Attention, attention_kernel
from trainwright.spec.convnet import transformer
from trainwright.spec.device import DeviceKind, DeviceSpec
from trainwright.spec.plan import Plan
from trainwright.spec.workload import KernelChoice, Recompute

GRAPH_KINDS: tuple[DeviceKind, ...] = ("cuda",)
ATTENTION, GRAPHS = "train.exec.attention", "train.exec.cuda_graphs"


class Refusal(NamedTuple):
    """A key of the recipe, and why its value cannot be, with what can."""

    key: str
    reason: str


def check(plan: Plan, kernels: KernelChoice) -> None:
    """Refuses kernels that cannot carry out a plan.

    Raises:
        RecipeError: names each reason.
        MachineError: the device can, and the kernel's package is not installed.
    """
    refused = tuple(refusals(plan, kernels))
    if refused:
        seen = "; ".join(each.reason for each in refused)
        raise RecipeError("this device or run cannot be computed so", where=refused[0].key, seen=seen)
    chosen = attention_kernel(kernels.attention)
    if chosen.package and find_spec(chosen.package) is None:
        raise MachineError(
            "{title} is not installed",
            where=ATTENTION,
            seen=kernels.attention,
            fix=f"{chosen.install}, or set {ATTENTION}=sdpa",
            title=chosen.title,
        )


def refusals(plan: Plan, kernels: KernelChoice) -> Iterator[Refusal]:
    """Yields why a plan cannot be carried out with these kernels, a line for each field, with the value that can be."""
    yield from (Refusal(ATTENTION, reason) for reason in _of_attention(plan, kernels))
    if kernels.cuda_graphs:
        yield from (Refusal(GRAPHS, reason) for reason in _of_graphs(plan, kernels))


def _of_attention(plan: Plan, kernels: KernelChoice) -> Iterator[str]:
    name, chosen = f"attention={kernels.attention}", attention_kernel(kernels.attention)
    device, precision = plan.cluster.device, plan.workload.precision
    if not _runs_on(chosen, device):
        yield f"{name}: {chosen.elsewhere.format(device=device.name, kind=device.kind)}; set attention=sdpa"
    if chosen.half_only and precision in ("fp32", "tf32"):
        yield f"{name}: it computes in 16 bits, not in {precision}; set precision=bf16"
    if chosen.masked:
        model = transformer(plan.model)
        if model.head_size not in chosen.heads:
            yield f"{name}: heads are {chosen.sizes}, not {model.head_size}; set attention=sdpa"
        if model.dropout.attention and not chosen.drops_weights:
            yield f"{name}: it drops no weights; set model.dropout.attention=0, or attention=math"
    yield from of_recompute(kernels, plan.workload.recompute)


def _runs_on(chosen: Attention, device: DeviceSpec) -> bool:
    right_kind = not chosen.kinds or device.kind in chosen.kinds
    return right_kind and (_capability(device) or "").startswith(chosen.capability)


def of_recompute(kernels: KernelChoice, recompute: Recompute) -> tuple[str, ...]:
    """Returns why these kernels are not recomputed so, with the value that can be; empty where they are."""
    if attention_kernel(kernels.attention).selective or recompute != "selective":
        return ()
    return (
        f"attention={kernels.attention}: its result is none that recompute=selective keeps; set recompute=none or full",
    )


def _capability(device: DeviceSpec) -> str | None:
    known = find_device(device.name)
    return device.compute_capability or (None if known is None else known.compute_capability)


def _of_graphs(plan: Plan, kernels: KernelChoice) -> Iterator[str]:
    device, parallel = plan.cluster.device, plan.parallel
    if device.kind not in GRAPH_KINDS:
        yield f"cuda_graphs: {device.name} ({device.kind}) launches none; set cuda_graphs=false"
    if not parallel.compile:
        yield "cuda_graphs: they are made of compiled code; set compile=true"
    if parallel.ranks > 1:
        moved = "weights and messages of other ranks have no fixed place in memory"
        yield f"cuda_graphs: {moved}; set layout={{}}, which is one device, or cuda_graphs=false"
    chosen = attention_kernel(kernels.attention)
    if not chosen.in_graphs:
        yield f"cuda_graphs: {chosen.title} is called between compiled code; set attention=sdpa or flex"
    if plan.workload.activation_offload:
        yield "cuda_graphs: copies to host memory are none of a graph; set activation_offload=false"
