"""What kernels do not run with, known before any process starts; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from trainwright.core.errors import MachineError, RecipeError
from trainwright.hardware.catalogue.devices import find_device
from trainwright.spec.convnet import transformer
from trainwright.spec.device import DeviceKind, DeviceSpec
from trainwright.spec.plan import Plan
from trainwright.spec.workload import MASKED_KERNELS, KernelChoice, Recompute

FLEX_KINDS: tuple[DeviceKind, ...] = ("cuda", "rocm", "xpu")
"""Kinds for which torch 2.11 to 2.13 has gradients of flex_attention; of a processor and of mps it refuses them."""
FLEX_HEAD = 16
"""The smallest size of a head: Triton multiplies no narrower tiles."""
FLASH3_CAPABILITY = "9."
"""FlashAttention-3 is written for Hopper's instructions, which no later generation has."""
FLASH3_MODULE = "flash_attn_interface"
FLASH3_INSTALL = (
    "pip install --no-build-isolation 'git+https://github.com/Dao-AILab/flash-attention.git#subdirectory=hopper'"
)
FLASH3_HEAD = 256
"""The largest size of a head."""
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
    if kernels.attention == "fa3" and find_spec(FLASH3_MODULE) is None:
        raise MachineError(
            "FlashAttention-3 is not installed",
            where=ATTENTION,
            seen="fa3",
            fix=f"{FLASH3_INSTALL}, or set {ATTENTION}=sdpa",
        )


def refusals(plan: Plan, kernels: KernelChoice) -> Iterator[Refusal]:
    """Yields why a plan cannot be carried out with these kernels, a line for each field, with the value that can be."""
    if kernels.attention in MASKED_KERNELS:
        yield from (Refusal(ATTENTION, reason) for reason in _of_attention(plan, kernels))
    if kernels.cuda_graphs:
        yield from (Refusal(GRAPHS, reason) for reason in _of_graphs(plan, kernels))


def _of_attention(plan: Plan, kernels: KernelChoice) -> Iterator[str]:
    name = f"attention={kernels.attention}"
    if transformer(plan.model).kind != "decoder":
        yield f"{name}: it hides later tokens, which {plan.model.family} sees; set attention=sdpa"
    yield from _of_flex(plan, name) if kernels.attention == "flex" else _of_flash3(plan, name)
    if transformer(plan.model).score_cap is not None:
        yield f"{name}: it bounds no scores (score_cap); set attention=sdpa, which then makes them whole"
    if transformer(plan.model).positions == "alibi":
        yield f"{name}: it adds no biases of positions (ALiBi); set attention=sdpa"
    if transformer(plan.model).dropout.attention:
        yield f"{name}: it drops no weights; set model.dropout.attention=0, or attention=math"
    yield from of_recompute(kernels, plan.workload.recompute)


def of_recompute(kernels: KernelChoice, recompute: Recompute) -> tuple[str, ...]:
    """Returns why these kernels are not recomputed so, with the value that can be; empty where they are."""
    if kernels.attention not in MASKED_KERNELS or recompute != "selective":
        return ()
    return (
        f"attention={kernels.attention}: its result is none that recompute=selective keeps; set recompute=none or full",
    )


def _of_flex(plan: Plan, name: str) -> Iterator[str]:
    device, head = plan.cluster.device, transformer(plan.model).head_size
    if device.kind not in FLEX_KINDS:
        yield f"{name}: torch computes no gradients of it on {device.name} ({device.kind}); set attention=sdpa"
    if head < FLEX_HEAD:
        yield f"{name}: heads are {FLEX_HEAD} or larger, not {head}; set attention=sdpa"


def _of_flash3(plan: Plan, name: str) -> Iterator[str]:
    device, precision, head = plan.cluster.device, plan.workload.precision, transformer(plan.model).head_size
    if device.kind != "cuda" or not (_capability(device) or "").startswith(FLASH3_CAPABILITY):
        yield f"{name}: it is for Hopper (compute capability 9.0), not for {device.name}; set attention=sdpa"
    if precision in ("fp32", "tf32"):
        yield f"{name}: it computes in 16 bits, not in {precision}; set precision=bf16"
    if transformer(plan.model).windowed_layers:
        yield f"{name}: it is given no windows here; set attention=sdpa or flex"
    if head > FLASH3_HEAD or head % 8:
        sizes = f"multiples of 8 up to {FLASH3_HEAD}"
        yield f"{name}: heads are {sizes}, not {head}; set attention=sdpa"


def _capability(device: DeviceSpec) -> str | None:
    known = find_device(device.name)
    return device.compute_capability or (None if known is None else known.compute_capability)


def _of_graphs(plan: Plan, kernels: KernelChoice) -> Iterator[str]:
    device, parallel = plan.cluster.device, plan.parallel
    if device.kind not in GRAPH_KINDS:
        yield f"cuda_graphs: {device.name} ({device.kind}) launches none; set cuda_graphs=false"
    elif not parallel.compile:
        yield "cuda_graphs: they are made of compiled code; set compile=true"
    if parallel.ranks > 1:
        moved = "weights and messages of other ranks have no fixed place in memory"
        yield f"cuda_graphs: {moved}; set layout={{}}, which is one device, or cuda_graphs=false"
    if kernels.attention == "fa3":
        yield "cuda_graphs: FlashAttention-3 is called between compiled code; set attention=sdpa or flex"
    if plan.workload.activation_offload:
        yield "cuda_graphs: copies to host memory are none of a graph; set activation_offload=false"
