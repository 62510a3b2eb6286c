"""``TrainSummary``: what a training run came to; ``summary.json`` is its file form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from trainwright.core.frozen import dataclass
from trainwright.spec.measures import MemoryUse, PhaseTimes

ResultWeights = Literal["trained", "averaged"]
RECENT_UPDATES = 20
"""Updates that ``TrainSummary.train_loss`` is a mean over: enough to even out batches, few enough to be of the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterGroup:
    """Parameters that are updated alike: tensors, their numbers, the rule with its peak rate and decay.

    ``match`` is the recipe's pattern, empty for what none matches. Without a rate they are frozen.
    """

    match: str
    rule: str
    tensors: int
    parameters: int
    lr: float | None = None
    weight_decay: float | None = None


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
class RankUse:
    """What one rank measured of ``steps`` steps, since its process began; ``phases`` are seconds of all of them."""

    rank: int
    host: str
    steps: int
    phases: PhaseTimes
    memory: MemoryUse

    @property
    def step_phases(self) -> PhaseTimes:
        """Returns seconds of a step by phase."""
        return self.phases.of_steps.scaled(1 / max(1, self.steps))


@dataclass(frozen=True, kw_only=True, slots=True)
class Goodput:
    """How much of the time that a run was worked on went into steps that counted.

    Attributes:
        share: ``steps_s`` of ``wall_s``.
        wall_s: from the beginning of each session to its end, with what restarts took.
        steps_s: seconds of the steps that the result is made of.
        lost_s: seconds of neither steps, compilation, checkpoints nor evaluation: start-up, restarts, and steps that
            were done again after an interruption.
    """

    share: float
    wall_s: float
    steps_s: float
    lost_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyStopping:
    """What a run made of watching its validations.

    Attributes:
        planned_steps: updates that it would have made at most.
        result_step: after how many of them the network had the weights that the result has.
    """

    planned_steps: int
    result_step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSummary:
    """Measurements of a finished run.

    Attributes:
        steps: optimizer updates.
        tokens: tokens computed on, padding included.
        copy_bytes: of the host's memory, beside ``memory``: the copy of the state that checkpoints were written from
            while training went on; 0 where one was written at the end alone.
        best: of the checkpoints that are kept the best by a metric of validation: step, metric, value and folder; None
            where the best are not kept.
        faults: other updates that were left out, or rolled back, because their numbers cannot be right.
        overflows: updates that were left out because a scaled gradient left fp16's range.
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
        peak_flops_per_s: of all devices in this precision; None where unknown.
        mfu: share of the peak; None where unknown.
        execution: how it was done.
        goodput: None in summaries of older versions.
        ranks: each of several; empty for one process.
        weights: whose the validation is, and which the result has: those that were trained, or their average. Losses of
            training are always of the trained ones.
        early_stopping: None where the run does not stop early, whatever its validations say.
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
    goodput: Goodput | None = None
    ranks: tuple[RankUse, ...] = ()
    copy_bytes: int = 0
    best: Mapping[str, Any] | None = None
    overflows: int = 0
    faults: int = 0
    weights: ResultWeights = "trained"
    early_stopping: EarlyStopping | None = None

    @property
    def share_made(self) -> float:
        """Returns the share of the planned steps that were made: 1 but where the run stopped early."""
        return 1.0 if self.early_stopping is None else self.steps / self.early_stopping.planned_steps

    @property
    def seconds(self) -> float:
        """Returns seconds of the whole run."""
        return self.phases.total_s
