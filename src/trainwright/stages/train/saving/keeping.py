"""Which checkpoints are kept: the last ones, the best ones by a metric, and every so many steps one for good."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.artifact.checkpoint.index import checkpoints_in, read_index, step_of
from trainwright.core.errors import DataError, RecipeError
from trainwright.core.spelling import did_you_mean
from trainwright.spec.sections.train import TrainSection


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What is kept.

    Attributes:
        last: of the newest.
        best: of the best by ``metric``.
        every: checkpoints of steps that this divides are kept for good; 0: none.
        metric: of the validation split.
        largest: the best has the largest value, else the smallest.
    """

    last: int
    best: int = 0
    every: int = 0
    metric: str = "loss"
    largest: bool = False

    @classmethod
    def of(cls, train: TrainSection) -> Policy:
        """Returns what a recipe says; a run that ends with its best weights keeps them."""
        how, stopping = train.exec, train.early_stopping
        restores = stopping is not None and stopping.restore_best
        direction, metric = (stopping.by if stopping and restores else how.best_by).split(maxsplit=1)
        return cls(
            last=how.keep_checkpoints,
            best=max(how.keep_best, int(restores)),
            every=how.keep_every_steps,
            metric=metric,
            largest=direction == "max",
        )

    def kept(self, steps: Iterable[int], values: Mapping[int, float]) -> set[int]:
        """Returns the steps whose checkpoints are kept; ``values`` has the metric of those where it was measured."""
        steps = sorted(steps)
        for_good = {step for step in steps if self.every and step % self.every == 0}
        return {*steps[-self.last :], *self.best_of(values), *for_good}

    def best_of(self, values: Mapping[int, float]) -> list[int]:
        """Returns the steps that are kept as the best ones."""
        return self.ranking(values)[: self.best]

    def ranking(self, values: Mapping[int, float]) -> list[int]:
        """Returns steps, the best first; of equals the earlier one."""
        return sorted(values, key=lambda step: (-values[step] if self.largest else values[step], step))

    def wants(self, measured: Mapping[str, float], values: Mapping[int, float]) -> bool:
        """Returns whether what was measured now is among the best, of those that ``values`` has.

        Raises:
            RecipeError: nothing of this name is measured.
        """
        if self.metric not in measured:
            raise RecipeError(
                "validation measures nothing of this name",
                where="train.exec.best_by",
                seen=self.metric,
                expected=f"one of {', '.join(measured) or 'none'}",
                fix=did_you_mean(self.metric, measured),
            )
        return sys.maxsize in self.best_of({**values, sys.maxsize: measured[self.metric]})


def measured(root: Path, metric: str) -> dict[int, float]:
    """Returns a metric of each complete checkpoint where it was measured, by step; a damaged one has none."""
    values = {}
    for path in checkpoints_in(root):
        try:
            metrics = read_index(path).metrics
        except DataError:
            continue
        if metric in metrics:
            values[step_of(path)] = metrics[metric]
    return values
