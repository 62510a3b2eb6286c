"""Bytes of one trained parameter, whatever the layout: weight, gradient, and what the optimizer keeps and copies."""

from __future__ import annotations

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.parameters import AVERAGE_BYTES, MOMENT_BYTES, moments_per_parameter
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Workload


def has_half_gradients(workload: Workload) -> bool:
    """Returns True where gradients stay in 16 bits whatever the software: of pure weights, and fp16's of mixed ones."""
    return workload.states == "pure" or (workload.states == "mixed" and workload.precision == "fp16")


@dataclass(frozen=True, kw_only=True, slots=True)
class StateBytes:
    """Bytes of one trained parameter: kept weight, gradient, the optimizer's state, and the update's temporary."""

    weight: float
    gradient: float
    optimizer: float
    update: float


def parameter_bytes(model: ModelSpec, workload: Workload, memory: StackMemory) -> StateBytes:
    """Returns the bytes for each parameter by ``Workload.states``.

    ``mixed`` keeps an fp32 master copy; its gradients are fp32 beside bf16 and fp16 beside fp16 (Megatron-LM's
    ``accumulate_allreduce_grads_in_fp32`` follows bf16), unless the stack keeps both.
    """
    size = workload.element_bytes
    mixed = workload.states == "mixed" and size < 4
    full = size if workload.states == "pure" else 4.0
    weight = size if mixed else full
    if workload.precision == "fp8" and memory.kernels == "fused":
        weight += memory.narrow_copy_bytes
    reduced = mixed and (memory.reduced_gradients or has_half_gradients(workload))
    gradient, master = (size if reduced else full), (4.0 if mixed else 0.0)
    if mixed and memory.master_gradients:
        gradient, master = (gradient, master + 4.0) if reduced else (gradient + size, master)
    moment = full if workload.moments is None else MOMENT_BYTES[workload.moments]
    return StateBytes(
        weight=weight,
        gradient=gradient,
        optimizer=master + moment * moments_per_parameter(model, workload) + average_bytes(workload),
        update=full * memory.update_copies,
    )


def average_bytes(workload: Workload) -> float:
    """Returns the bytes of one weight's moving average, which counts as the optimizer's state."""
    return AVERAGE_BYTES if workload.average_every else 0.0


def updates_by_tensor(workload: Workload) -> bool:
    """Returns whether the optimizer updates tensor by tensor, and so copies one tensor at most.

    8-bit and paged ones do: bitsandbytes calls one kernel for each tensor, in place
    (bitsandbytes-foundation/bitsandbytes@95f9af30:bitsandbytes/optim/optimizer.py, ``step`` and ``update_step``), and
    torchao compiles the update of one parameter (pytorch/ao@36027d8:torchao/optim/adam.py, ``single_param_adam``).
    """
    return workload.moments == "int8" or workload.paged_moments
