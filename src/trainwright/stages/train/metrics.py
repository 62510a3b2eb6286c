"""What training tells the world: events at a cadence, TensorBoard beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwright.artifact.events import Events, restarts_in
from trainwright.planner.counts.flops import utilisation
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.measures import BESIDE_STEPS, MemoryUse, PhaseTimes
from trainwright.spec.summary import RECENT_UPDATES, TrainExecution, TrainSummary
from trainwright.stages.train.step import Update

if TYPE_CHECKING:
    from trainwright.stages.train.observe.board import Board

Losses = tuple[tuple[float, int], ...]
"""Of each update the summed loss in nats, and over how many targets."""


def mean_loss(losses: Losses) -> float:
    """Returns the mean in nats per target; NaN of no update."""
    return sum(nats for nats, _ in losses) / sum(targets for _, targets in losses) if losses else math.nan


class TrainingMetrics:
    """Gathers updates and reports their mean every so many steps."""

    def __init__(
        self,
        events: Events,
        board: Board | None,
        *,
        unit: str,
        counted: tuple[str, int] = ("tokens", 1),
        flops_per_token: float,
        peak_flops_per_s: float | None,
        recent: Losses = (),
    ) -> None:
        """Report to these.

        Args:
            events: where to report.
            board: where to report as well, or None.
            unit: of the mean loss.
            counted: what people count a batch in, and the tokens of one.
            flops_per_token: model FLOPs of training on one token, forward and backward.
            peak_flops_per_s: dense matmul rate of all devices in the run's dtype; None where unknown: no MFU then.
            recent: losses of the last updates before these.
        """
        self._events, self._board = events, board
        self._counted = counted
        self._flops_per_token, self._peak = flops_per_token, peak_flops_per_s
        self._unit = unit
        self.recent: Losses = tuple(recent)
        self._updates: list[tuple[Update, int]] = []
        self._left_out: list[int] = []
        """Tokens of each update that was computed since the last report, and not made."""
        self._warned_of_peak = peak_flops_per_s is None

    def add(self, update: Update, tokens: int) -> None:
        """Take in one update of so many tokens; its tensors are not read yet, so that nothing waits for the device."""
        self._updates.append((update, tokens))

    def leave_out(self, update: object) -> None:
        """Forget the loss of an update that was not made; it took its time."""
        self._left_out += [tokens for each, tokens in self._updates if each is update]
        self._updates = [each for each in self._updates if each[0] is not update]

    def go_back(self, recent: Losses) -> None:
        """Forget all updates after those whose losses these are."""
        self._updates, self._left_out, self.recent = [], [], tuple(recent)

    def report(self, step: int, rates: Mapping[str, float], times: PhaseTimes, *, tokens: int) -> float:
        """Report the updates since the last report and forget them.

        Args:
            step: updates done so far.
            rates: the learning rates of the last one, by metric.
            times: seconds since the last report, by phase.
            tokens: of all updates so far.

        Returns:
            The mean loss in nats per unit; NaN or infinity where an update or its gradient was, or none was made.
        """
        updates, count = [update for update, _ in self._updates], len(self._updates)
        if not count:
            self._left_out.clear()  # the time that they took is not told either
            return math.nan
        losses = tuple((float(update.loss_sum), int(update.targets)) for update in updates)
        self.recent = (*self.recent, *losses)[-RECENT_UPDATES:]
        loss = mean_loss(losses)
        norm = max(float(update.grad_norm) for update in updates)
        beside = {name: sum(float(update.beside[name]) for update in updates) / count for name in updates[0].beside}
        of_steps = times.of_steps
        computed = count + len(self._left_out)
        steps_per_s = computed / of_steps.total_s
        speed = (sum(each for _, each in self._updates) + sum(self._left_out)) / of_steps.total_s
        self._updates.clear()
        self._left_out.clear()
        self.metric("train/loss", loss, step=step, unit=self._unit)
        for name, rate in rates.items():
            self.metric(name, rate, step=step)
        self.metric("train/grad_norm", norm, step=step)
        for name, value in beside.items():
            self.metric(name, value, step=step)
        self.metric("train/steps_per_s", steps_per_s, step=step, unit="steps/s")
        name, size = self._counted
        self.metric(f"train/{name}_per_s", speed / size, step=step, unit=f"{name}/s")
        self.metric(f"train/{name}", tokens / size, step=step, unit=name)
        self._report_utilisation(speed, step=step)
        for name, seconds in of_steps.as_dict().items():
            if name not in BESIDE_STEPS:
                self._events.emit("phase", name, seconds / computed, unit="s", step=step)
        return loss if math.isfinite(norm) else norm

    def _report_utilisation(self, tokens_per_s: float, *, step: int) -> None:
        flops_per_s = tokens_per_s * self._flops_per_token
        share = utilisation(flops_per_s, self._peak)
        if share is not None:
            self.metric("train/mfu", share, step=step)
        elif self._peak and not self._warned_of_peak:
            self._events.message(
                f"MFU is unknown: training computes {flops_per_s / 1e9:,.0f} GFLOP/s, more than the measured peak of "
                f"{self._peak / 1e9:,.0f}; measure again on a quiet machine: trainwright doctor --fresh"
            )
            self._warned_of_peak = True

    def message(self, text: str) -> None:
        """Tell a person something."""
        self._events.message(text)

    def metric(self, name: str, value: float, *, step: int, unit: str = "") -> None:
        """Report one number everywhere."""
        self._events.metric(name, value, unit=unit, step=step)
        if self._board is not None:
            self._board.add_scalar(name, value, step)


def summary_of(
    trainer: Any, validation: dict[str, Any] | None, memory: MemoryUse, *, flops_per_token: float
) -> TrainSummary:
    """Returns what a training that ended says of itself; every process must ask.

    Args:
        trainer: a ``Trainer`` after its last step.
        validation: what was measured then.
        memory: of this process, by class.
        flops_per_token: model FLOPs of training on one token, forward and backward.
    """
    settings, tokens, world, progress = trainer.settings, trainer.tokens, trainer.world, trainer.progress
    phases = PhaseTimes.from_mapping(progress.phases)
    speed = tokens / phases.of_steps.total_s
    return TrainSummary(
        steps=progress.step,
        tokens=tokens,
        passes=tokens / settings.epoch_tokens,
        parameters=total_parameters(settings.model),
        precision=settings.precision,
        train_loss=mean_loss(progress.recent),
        validation=validation,
        phases=phases,
        step_phases=phases.of_steps.scaled(1 / progress.step),
        memory=memory,
        process_bytes=trainer.process_bytes,
        copy_bytes=trainer.copy_bytes,
        best=trainer.checkpoints.best(),
        overflows=progress.overflows,
        faults=progress.faults,
        early_stopping=trainer.early_stopping,
        weights="averaged" if trainer.optimizers.result_is_average else "trained",
        tokens_per_s=speed,
        flops_per_token=flops_per_token,
        peak_flops_per_s=settings.peak_flops_per_s,
        mfu=utilisation(speed * flops_per_token, settings.peak_flops_per_s),
        goodput=trainer.goodput(),
        ranks=tuple(world.gathered(trainer.rank_use(memory))) if world.ranks > 1 else (),
        execution=TrainExecution(
            device=settings.device.type,
            threads=settings.threads,
            compiled=settings.compiled,
            micro_batch=settings.micro_batch,
            resumes=progress.resumes,
            restarts=restarts_in(trainer.out / "events.jsonl"),
            deterministic=settings.deterministic,
        ),
    )


def finite(validation: dict[str, Any] | None) -> dict[str, float]:
    """Returns what was measured on the validation split, by name; what is no number is left out."""
    metrics = {} if validation is None else validation["metrics"]
    return {name: metric["value"] for name, metric in metrics.items() if metric["value"] is not None}
