"""How a plan is carried out here, in training and in evaluation alike: its device, and the switches of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from trainwright.core.errors import RecipeError
from trainwright.core.registry import load
from trainwright.runtime.allocator import keep_freed_memory
from trainwright.runtime.device import ACCELERATORS, choose
from trainwright.spec.plan import Plan
from trainwright.spec.sections.train import DEVICES, TrainExec


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """Where and how torch computes; ``threads`` None: as many as torch takes."""

    device: torch.device
    threads: int | None
    deterministic: bool
    tf32: bool = False
    """Products of fp32 tensors are computed in tf32, where that is an accelerator's."""


def execution_of(plan: Plan, how: TrainExec) -> Execution:
    """Returns what a plan says, and the recipe where the plan leaves open whether algorithms are deterministic.

    Raises:
        RecipeError: nothing is computed here on a device of this kind.
        MachineError: torch sees no such device.
    """
    kind, deterministic = plan.cluster.device.kind, plan.parallel.deterministic
    if kind not in DEVICES:
        known = f"one of {', '.join(DEVICES)}"
        raise RecipeError("the trainer cannot execute this plan", where="plan", seen=kind, expected=known)
    return Execution(
        device=choose(kind).torch_device,
        threads=plan.parallel.threads,
        deterministic=how.is_deterministic(kind) if deterministic is None else deterministic,
        tf32=plan.workload.precision == "tf32",
    )


switches: Any = torch.utils.deterministic
"""A module that torch builds at run time, so that type checkers cannot see into it."""


@contextmanager
def torch_settings(execution: Execution) -> Iterator[None]:
    """Deterministic algorithms and the planned threads, which are put back afterwards; a heap that is kept.

    Some libraries must be told before they compute: cuBLAS is deterministic in a workspace of a fixed size alone.
    """
    if execution.device.type == "cpu":
        keep_freed_memory()
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    if execution.threads is not None:
        torch.set_num_threads(execution.threads)
    torch.use_deterministic_algorithms(execution.deterministic)
    if execution.deterministic and execution.device.type != "cpu":
        load(f"{ACCELERATORS}:prepare_deterministic", kind="device")(execution.device)
    # Filling new memory with NaN is for finding bugs; it would cost a pass over every tensor.
    narrows = execution.tf32 and execution.device.type != "cpu"
    if narrows:
        torch.set_float32_matmul_precision("high")
    fill, switches.fill_uninitialized_memory = switches.fill_uninitialized_memory, False
    try:
        yield
    finally:
        if narrows:
            torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        switches.fill_uninitialized_memory = fill
