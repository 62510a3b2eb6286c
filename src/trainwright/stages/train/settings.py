"""Everything a training run was resolved to, and the torch switches that follow from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from trainwright.runtime.allocator import keep_freed_memory
from trainwright.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """A run with no ``auto`` left in it; sequences are those of one update, an epoch is one of the train split."""

    model: ModelSpec
    steps: int
    asked_warmup_steps: int
    epoch_tokens: int
    sequence_tokens: int
    batch_sequences: int
    micro_batch: int
    precision: str
    dtype: torch.dtype
    compiled: bool
    threads: int | None
    deterministic: bool
    device: torch.device
    peak_flops_per_s: float | None

    @property
    def warmup_steps(self) -> int:
        """Updates of the warm-up, no more than the run has."""
        return min(self.steps, self.asked_warmup_steps)

    @property
    def passes(self) -> float:
        """How many times the run reads the train split."""
        return self.steps * self.batch_tokens / self.epoch_tokens

    def notes(self) -> list[str]:
        """Returns what a user should know of the run before it begins, a line each."""
        notes = [f"{self.steps:,} updates of {self.batch_tokens:,} tokens read the train split {self.passes:.3g} times"]
        if self.asked_warmup_steps > self.steps:
            notes.append(
                f"the warm-up ({self.asked_warmup_steps:,} updates) is longer than the run ({self.steps:,}): it is cut "
                "to the run, and the schedule behind it is never reached"
            )
        return notes

    @property
    def batch_tokens(self) -> int:
        """Tokens of one optimizer update."""
        return self.batch_sequences * self.sequence_tokens


switches: Any = torch.utils.deterministic
"""A module that torch builds at run time, so that type checkers cannot see into it."""


@contextmanager
def torch_settings(settings: Settings) -> Iterator[None]:
    """Deterministic algorithms and the planned threads, which are put back afterwards; a heap that is kept.

    On CUDA, products are deterministic only in a cuBLAS workspace of a fixed size; torch refuses them otherwise.
    """
    if settings.device.type == "cpu":
        keep_freed_memory()
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    torch.use_deterministic_algorithms(settings.deterministic)
    if settings.deterministic and settings.device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Filling new memory with NaN is for finding bugs; it would cost a pass over every tensor.
    fill, switches.fill_uninitialized_memory = switches.fill_uninitialized_memory, False
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        switches.fill_uninitialized_memory = fill
