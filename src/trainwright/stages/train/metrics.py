"""What training tells the world: events at a cadence, TensorBoard beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from trainwright.artifact.events import Events
from trainwright.planner.counts.flops import utilisation
from trainwright.spec.measures import BESIDE_STEPS, PhaseTimes
from trainwright.spec.summary import RECENT_UPDATES
from trainwright.stages.train.step import Update

Losses = tuple[tuple[float, int], ...]
"""Of each update the summed loss in nats, and over how many targets."""


def mean_loss(losses: Losses) -> float:
    """Returns the mean in nats per target; NaN of no update."""
    return sum(nats for nats, _ in losses) / sum(targets for _, targets in losses) if losses else math.nan


class Board(Protocol):
    """The part of ``torch.utils.tensorboard.SummaryWriter`` that is used here."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Record one number."""

    def close(self) -> None:
        """Write out what is buffered."""


class TrainingMetrics:
    """Gathers updates and reports their mean every so many steps."""

    def __init__(
        self,
        events: Events,
        board: Board | None,
        *,
        unit: str,
        batch_tokens: int,
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
            batch_tokens: tokens of one update.
            counted: what people count a batch in, and the tokens of one.
            flops_per_token: model FLOPs of training on one token, forward and backward.
            peak_flops_per_s: dense matmul rate of all devices in the run's dtype; None where unknown: no MFU then.
            recent: losses of the last updates before these.
        """
        self._events, self._board = events, board
        self._batch_tokens, self._counted = batch_tokens, counted
        self._flops_per_token, self._peak = flops_per_token, peak_flops_per_s
        self._unit = unit
        self.recent: Losses = tuple(recent)
        self._updates: list[Update] = []
        self._warned_of_peak = peak_flops_per_s is None

    def add(self, update: Update) -> None:
        """Take in one update; its tensors are not read yet, so that nothing waits for the device."""
        self._updates.append(update)

    def leave_out(self, update: object) -> None:
        """Forget an update that was not made."""
        self._updates = [each for each in self._updates if each is not update]

    def go_back(self, recent: Losses) -> None:
        """Forget all updates after those whose losses these are."""
        self._updates, self.recent = [], tuple(recent)

    def report(self, step: int, rates: Mapping[str, float], times: PhaseTimes) -> float:
        """Report the updates since the last report and forget them.

        Args:
            step: updates done so far.
            rates: the learning rates of the last one, by metric.
            times: seconds since the last report, by phase.

        Returns:
            The mean loss in nats per unit; NaN or infinity where an update or its gradient was, or none was made.
        """
        count = len(self._updates)
        if not count:
            return math.nan
        losses = tuple((float(update.loss_sum), int(update.targets)) for update in self._updates)
        self.recent = (*self.recent, *losses)[-RECENT_UPDATES:]
        loss = mean_loss(losses)
        norm = max(float(update.grad_norm) for update in self._updates)
        beside = {
            name: sum(float(update.beside[name]) for update in self._updates) / count
            for name in self._updates[0].beside
        }
        self._updates.clear()
        of_steps = times.of_steps
        steps_per_s = count / of_steps.total_s
        speed = steps_per_s * self._batch_tokens
        self.metric("train/loss", loss, step=step, unit=self._unit)
        for name, rate in rates.items():
            self.metric(name, rate, step=step)
        self.metric("train/grad_norm", norm, step=step)
        for name, value in beside.items():
            self.metric(name, value, step=step)
        self.metric("train/steps_per_s", steps_per_s, step=step, unit="steps/s")
        name, size = self._counted
        self.metric(f"train/{name}_per_s", speed / size, step=step, unit=f"{name}/s")
        self.metric(f"train/{name}", step * self._batch_tokens / size, step=step, unit=name)
        self._report_utilisation(speed, step=step)
        for name, seconds in of_steps.as_dict().items():
            if name not in BESIDE_STEPS:
                self._events.emit("phase", name, seconds / count, unit="s", step=step)
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


def open_board(directory: Path, *, wanted: bool, first_step: int, events: Events) -> Board | None:
    """Returns a TensorBoard writer, or None where it is not wanted or not installed (said once, with what helps)."""
    if not wanted:
        return None
    if find_spec("tensorboard") is None:
        events.message(
            "no TensorBoard files: run: pip install 'trainwright[report]' (or set train.exec.tensorboard=false)"
        )
        return None
    board: Board = import_module("torch.utils.tensorboard").SummaryWriter(str(directory), purge_step=first_step)
    return board


def finite(validation: dict[str, Any] | None) -> dict[str, float]:
    """Returns what was measured on the validation split, by name; what is no number is left out."""
    metrics = {} if validation is None else validation["metrics"]
    return {name: metric["value"] for name, metric in metrics.items() if metric["value"] is not None}
