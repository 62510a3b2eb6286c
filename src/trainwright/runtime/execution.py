"""How a plan is carried out here, in training and in evaluation alike: its device, and the switches of torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from trainwright.core.errors import RecipeError
from trainwright.runtime.allocator import keep_freed_memory
from trainwright.runtime.device import choose
from trainwright.spec.plan import Plan
from trainwright.spec.sections.train import TrainExec


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """Where and how torch computes; ``threads`` None: as many as torch takes."""

    device: torch.device
    threads: int | None
    deterministic: bool


def execution_of(plan: Plan, how: TrainExec) -> Execution:
    """Returns what a plan says, and the recipe where the plan leaves open whether algorithms are deterministic.

    Raises:
        RecipeError: nothing is computed here on a device of this kind.
        MachineError: it is a CUDA device, and torch sees none.
    """
    kind, deterministic = plan.cluster.device.kind, plan.parallel.deterministic
    if kind not in ("cpu", "cuda"):
        raise RecipeError("the trainer cannot execute this plan", where="plan", seen=kind, expected="cpu or cuda")
    return Execution(
        device=choose(kind).torch_device,
        threads=plan.parallel.threads,
        deterministic=how.is_deterministic(kind) if deterministic is None else deterministic,
    )


switches: Any = torch.utils.deterministic
"""A module that torch builds at run time, so that type checkers cannot see into it."""


@contextmanager
def torch_settings(execution: Execution) -> Iterator[None]:
    """Deterministic algorithms and the planned threads, which are put back afterwards; a heap that is kept.

    On CUDA, products are deterministic only in a cuBLAS workspace of a fixed size; torch refuses them otherwise.
    """
    if execution.device.type == "cpu":
        keep_freed_memory()
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    if execution.threads is not None:
        torch.set_num_threads(execution.threads)
    torch.use_deterministic_algorithms(execution.deterministic)
    if execution.deterministic and execution.device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Filling new memory with NaN is for finding bugs; it would cost a pass over every tensor.
    fill, switches.fill_uninitialized_memory = switches.fill_uninitialized_memory, False
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        switches.fill_uninitialized_memory = fill
