"""``TrainSummary``: what a training run came to; ``summary.json`` is its file form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.spec.measures import MemoryUse, PhaseTimes

RECENT_UPDATES = 20
"""Updates that ``TrainSummary.train_loss`` is a mean over: enough to even out batches, few enough to be of the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainExecution:
    """How a run was carried out; ``threads`` None: as many as torch takes."""

    device: str
    threads: int | None
    compiled: bool
    micro_batch: int
    resumes: int
    deterministic: bool | None = None
    """None in summaries of older versions."""
    restarts: int = 0
    """After ranks that died or hung."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSummary:
    """Measurements of a finished run.

    Attributes:
        steps: optimizer updates.
        tokens: tokens computed on, padding included.
        passes: how many times the train split was read; None in summaries of older versions.
        parameters: of the network.
        precision: of matrix products.
        train_loss: mean loss of the last ``RECENT_UPDATES`` updates, or of all where there are fewer, in nats per unit
            of the task; whatever was reported when, and wherever the run was interrupted.
        validation: what the task measured on the validation split at the end, as ``Evaluation.as_json``; None where
            there is none.
        phases: seconds of the whole run by phase, over all interruptions.
        step_phases: seconds of a training step by phase.
        memory: bytes at the peak by class.
        process_bytes: bytes of the process before the network was built; None in summaries of older versions.
        tokens_per_s: over training steps alone.
        flops_per_token: model FLOPs, forward and backward.
        peak_flops_per_s: of the device in this precision; None where unknown.
        mfu: share of the peak; None where unknown.
        execution: how it was done.
    """

    steps: int
    tokens: int
    parameters: int
    precision: str
    train_loss: float
    validation: Mapping[str, Any] | None
    phases: PhaseTimes
    step_phases: PhaseTimes
    memory: MemoryUse
    tokens_per_s: float
    flops_per_token: float
    peak_flops_per_s: float | None
    mfu: float | None
    execution: TrainExecution
    process_bytes: int | None = None
    passes: float | None = None

    @property
    def seconds(self) -> float:
        """Returns seconds of the whole run."""
        return self.phases.total_s
