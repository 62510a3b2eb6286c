"""The ``train`` section of a recipe: length, batch, optimizer, schedule, validation."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from trainwright.core.config.by_name import ByName
from trainwright.core.registry import load
from trainwright.spec.device import DeviceKind
from trainwright.spec.parts.batch_sizes import BatchSizes
from trainwright.spec.sections.base import Bytes, Count, DurationText, Positive, Seconds, Section, Workers
from trainwright.spec.sections.faults import FaultsSection
from trainwright.spec.sections.layout import LayoutSection
from trainwright.spec.sections.updates.batch import BatchPartSection, RateScalingSection, batch_sizes
from trainwright.spec.sections.updates.loss import LossSection
from trainwright.spec.sections.updates.optimizer import OPTIMIZER, OPTIMIZER_KEYS, AdamWAloneSection, OptimizerSection
from trainwright.spec.sections.updates.schedule import SCHEDULE, SCHEDULE_KEYS, DecaySection, ScheduleSection
from trainwright.spec.sections.updates.stopping import MEANT, EarlyStoppingSection
from trainwright.spec.sections.weights.average import EmaSection
from trainwright.spec.sections.weights.method import MethodSection
from trainwright.spec.summary import ResultWeights
from trainwright.spec.workload import (
    AttentionKernel,
    KernelChoice,
    Recompute,
    ReduceDtype,
    UpdateKernel,
)

SLURM_END = "SLURM_JOB_END_TIME"
"""Slurm's variable that limits a training as ``time_limit`` does: the end of its job, in seconds since 1970."""
MOST_TOKENS = 1 << 40
"""Of a sequence and of an update: 65,000 times the 16M of the largest batches that are published (Llama 3)."""

DeviceChoice = Literal["auto", "cpu", "cuda", "rocm", "npu", "tpu", "mps", "xpu"]
DEVICES: tuple[str, ...] = get_args(DeviceChoice)[1:]
"""The kinds of device that training runs on; ``catalog/accelerators`` has a file for each."""


class LossScaleSection(Section):
    """A factor that halves with each overflow of a gradient and doubles after many updates without one."""

    initial: float = Field(65536.0, gt=0, description="factor of the loss that a run begins with; rounded to 2^n")
    growth_steps: Positive = Field(2000, description="updates in a row without an overflow after which it doubles")
    least: float = Field(1.0, gt=0, description="smallest factor; an overflow there is a fault (train.faults)")


class ValidationSection(Section):
    """Loss on held-out data while training."""

    every_steps: int = Field(250, gt=0, description="steps between validations; the last step is always validated")
    tokens: Count | None = Field(None, description="tokens of each validation; default: the whole validation split")


class TrainExec(Section):
    """How training is carried out; changes nothing about what is trained, beyond floating-point rounding."""

    micro_batch: Positive | Literal["auto"] = Field(
        "auto", description="sequences per forward pass; auto: the planner's"
    )
    layout: Literal["auto"] | LayoutSection = Field(
        "auto", description="how several processes share the work; auto: the planner's, over the accelerators here"
    )
    nodes: Positive = Field(1, description="hosts that train together; train --nodes and launchers set it")
    rendezvous_timeout: Seconds = Field(600.0, description="how long the commands of a training wait for each other")
    fit_memory: Bytes | None = Field(
        None, description="memory of a process that the plan fits the run into by micro batch and recompute; null: all"
    )
    compile: bool | Literal["auto"] = Field("auto", description="torch.compile; auto: where doctor found a compiler")
    recompile_limit: int = Field(
        8, ge=1, le=256, description="how often torch.compile compiles one function, for other shapes and blocks"
    )
    attention: AttentionKernel = Field(
        "auto",
        description="math: whole scores; sdpa: torch's fused kernel; flex: flex_attention; fa3: FlashAttention-3 "
        "(Hopper); auto: math for short sequences on a CPU, else sdpa",
    )
    update: UpdateKernel = Field(
        "fused", description="AdamW in one kernel, or op by op: over all tensors (foreach), or tensor by tensor (loop)"
    )
    loss_chunk_tokens: Positive | Literal["auto", "whole"] = Field(
        "auto", description="tokens whose logits are made at a time; whole: of a micro batch; auto: what fills a cache"
    )
    reduce: ReduceDtype = Field(
        "fp32", description="dtype in which ranks add up gradients, and keep whole ones between micro batches"
    )
    pad_vocabulary: int = Field(
        1,
        ge=1,
        le=1024,
        description="multiple that the head's rows are filled up to in its products; 1: none",
    )
    cuda_graphs: bool = Field(
        False, description="launch compiled code as CUDA graphs: one launch for many kernels; of one device alone"
    )
    threads: Workers | Literal["auto"] = Field("auto", description="CPU threads; auto: the physical cores")
    device: DeviceChoice = Field("auto", description="where to train; auto: the accelerator that torch sees, if any")
    checkpoint_every: Seconds = Field(60.0, description="time between checkpoints; 0 writes the last one only")
    keep_checkpoints: int = Field(2, gt=0, description="newest checkpoints that are kept")
    keep_best: int = Field(0, ge=0, description="checkpoints that are kept beside them, of the best validations")
    best_by: str = Field("min loss", description="what best is: min or max, and a metric of validation")
    keep_every_steps: int = Field(0, ge=0, description="steps between checkpoints that are kept for good; 0: none")
    checkpoint_to: str | None = Field(
        None, description="folder or fsspec URL that checkpoints also go to, and come back from on another machine"
    )
    time_limit: Seconds | None = Field(
        None, gt=0, description="time after which training has saved and ended; SLURM_JOB_END_TIME is one too"
    )
    deterministic: bool | Literal["auto"] = Field("auto", description="deterministic algorithms alone; auto: on a CPU")
    log_every_steps: int = Field(10, gt=0, description="steps between logged metrics")
    tensorboard: bool = Field(True, description="also write TensorBoard event files")
    hang_after: Seconds = Field(
        45.0, gt=0, description="how long a rank may be silent or stand still in a step before all are ended"
    )
    slow_factor: float = Field(
        2.0, gt=1, description="how many times the others' time between collectives makes a rank a straggler"
    )
    max_restarts: int = Field(0, ge=0, description="how often a job is restarted after a rank or a host failed")
    elastic: bool = Field(False, description="restart on fewer ranks or hosts where one is gone for good")
    on_oom: Literal["stop", "adapt"] = Field(
        "stop", description="out of memory: stop and say what helps, or go on with the cheapest change that does"
    )
    rerun: bool = Field(
        False, description="compute a faulty step a second time: other bits mean that the device computes wrongly"
    )

    @field_validator("device", "fit_memory", "best_by", "checkpoint_to", mode="before")
    @classmethod
    def _is_meant(cls, value: object, info: ValidationInfo) -> object:
        load(MEANT, kind="check")(info.field_name, value)
        return value

    @model_validator(mode="after")
    def _nodes_share(self) -> Self:
        if isinstance(self.layout, LayoutSection) and self.layout.parallel().ranks % self.nodes:
            ranks = self.layout.parallel().ranks
            able = ", ".join(str(nodes) for nodes in range(1, ranks + 1) if ranks % nodes == 0)
            raise ValueError(f"{self.nodes} nodes cannot have as many of the layout's {ranks} ranks each: {able} can")
        if self.elastic and not self.max_restarts:
            raise ValueError(
                "elastic restarts on fewer ranks, and max_restarts: 0 restarts nothing; set max_restarts: 1"
            )
        return self

    @property
    def kernels(self) -> KernelChoice:
        """Returns the implementations that are asked for."""
        names = ("attention", "update", "loss_chunk_tokens", "reduce", "pad_vocabulary", "cuda_graphs")
        return KernelChoice(**{name: getattr(self, name) for name in names})

    def is_deterministic(self, device_kind: DeviceKind) -> bool:
        """Returns whether training on a device of this kind uses deterministic algorithms alone."""
        return device_kind == "cpu" if self.deterministic == "auto" else self.deterministic


class TrainSection(Section):
    """The mathematics of the training run."""

    sequence_tokens: Count = Field(1024, le=MOST_TOKENS, description="tokens of one training sequence")
    batch_tokens: Count = Field(65536, le=MOST_TOKENS, description="tokens of one optimizer update, over all devices")
    batch_ramp: tuple[BatchPartSection, ...] = Field(
        (), description="smaller batches that a run begins with, in turn; a duration in tokens then has more updates"
    )
    duration: DurationText = Field("20 tok/param", description="'300B tok', '20 tok/param', '2000 steps', '3 epochs'")
    method: MethodSection = Field(default_factory=MethodSection, description="which weights are trained")
    optimizer: Annotated[OptimizerSection, ByName(OPTIMIZER, OptimizerSection, OPTIMIZER_KEYS)] = Field(
        default_factory=AdamWAloneSection, description="the update rule"
    )
    schedule: Annotated[ScheduleSection, ByName(SCHEDULE, ScheduleSection, SCHEDULE_KEYS)] = Field(
        default_factory=DecaySection, description="learning rate over time"
    )
    rate_scaling: RateScalingSection | None = Field(
        None, description="peak rates that were found at another batch and follow it; null: as they are written"
    )
    loss: LossSection = Field(default_factory=LossSection, description="what training adds to the task's loss")
    validation: ValidationSection = Field(default_factory=ValidationSection, description="held-out loss")
    early_stopping: EarlyStoppingSection | None = Field(
        None, description="training ends when validations no longer get better; null: after its duration"
    )
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16", "fp8"] = Field(
        "auto", description="arithmetic of the matrices; auto: bf16 where the machine multiplies it faster than fp32"
    )
    loss_scale: LossScaleSection = Field(
        default_factory=LossScaleSection, description="with fp16: what the loss is multiplied by before gradients"
    )
    clip_norm: float | None = Field(1.0, gt=0, description="largest global gradient norm; null: none")
    document_masking: bool = Field(False, description="no token attends across a document boundary")
    recompute: Recompute = Field(
        "none", description="what of each block the backward pass computes again; selective: all but products"
    )
    recompute_budget: float = Field(
        0.0, ge=0, lt=1, description="share of the blocks that keep all they save, the others recomputed"
    )
    activation_offload: bool = Field(
        False, description="what layers save for the backward pass waits for it in host memory; not on a CPU"
    )
    ema: EmaSection | None = Field(None, description="an exponential moving average of the weights; null: none")
    faults: FaultsSection = Field(
        default_factory=FaultsSection, description="what becomes of an update whose numbers cannot be right"
    )
    exec: TrainExec = Field(default_factory=TrainExec, description="how, not what")

    @property
    def rate_factor(self) -> float:
        """Returns what every peak rate is multiplied by."""
        return 1.0 if self.rate_scaling is None else self.rate_scaling.factor(self.batch_tokens)

    @property
    def sizes(self) -> BatchSizes:
        """Returns the tokens of each update."""
        return batch_sizes(self.batch_tokens, self.batch_ramp, sequence_tokens=self.sequence_tokens)

    @property
    def averages(self) -> bool:
        """Returns whether an average of the weights is kept, beside them or by the optimizer itself."""
        return self.ema is not None or self.optimizer.averages

    @property
    def result_weights(self) -> ResultWeights:
        """Returns which weights validation measures and the result has."""
        used = self.optimizer.averages if self.ema is None else self.ema.use
        return "averaged" if used else "trained"

    def _check_schedule_free(self) -> None:
        if self.ema is not None:
            raise ValueError(f"{self.optimizer.name} averages the weights itself: leave out ema")
        if self.schedule.name != "constant":
            name, seen = self.optimizer.name, self.schedule.name
            raise ValueError(f"{name} needs schedule.name=constant (its warm-up stays), seen {seen}")

    def _check_best(self) -> None:
        stopping, how = self.early_stopping, self.exec
        if stopping is not None and stopping.restore_best and how.keep_best and how.best_by != stopping.by:
            raise ValueError(
                f"early_stopping.by ({stopping.by}) and exec.best_by ({how.best_by}) say which validation is best: "
                "set both to the same"
            )

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.batch_tokens % self.sequence_tokens:
            near = max(1, round(self.batch_tokens / self.sequence_tokens)) * self.sequence_tokens
            raise ValueError(
                f"batch_tokens ({self.batch_tokens}) is not a multiple of sequence_tokens "
                f"({self.sequence_tokens}); nearest that is: {near}"
            )
        batch_sizes(self.batch_tokens, self.batch_ramp, sequence_tokens=self.sequence_tokens)
        if self.optimizer.averages:
            self._check_schedule_free()
        self._check_best()
        if self.precision != "fp16" and self.loss_scale != LossScaleSection():
            raise ValueError(f"loss_scale is for precision=fp16, seen {self.precision}")
        if self.recompute_budget and self.recompute == "none":
            raise ValueError("recompute_budget leaves blocks out of recompute: set recompute=full or selective")
        if self.exec.fit_memory is not None and self.recompute_budget:
            raise ValueError("exec.fit_memory chooses the recompute_budget: leave one of them out")
        if self.activation_offload and self.recompute == "selective":
            raise ValueError("activation_offload moves nothing that recompute=selective keeps: set none or full")
        return self
