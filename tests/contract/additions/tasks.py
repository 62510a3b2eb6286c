"""A task that the project does not have: next tokens, but none that has hardly any tokens before it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.model.losses import IGNORE
from trainwright.model.network import Network
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.task import TaskKind

UNSEEN = 3
TASK = TaskKind(make=f"{__name__}:informed")


def informed(recipe: Recipe, dataset: TokenDataset) -> Informed:
    """What a recipe names."""
    return Informed(sequence_tokens=recipe.train.sequence_tokens)


@dataclass(frozen=True, kw_only=True)
class Informed(NextToken):
    """The first ``unseen`` tokens of a window are not learnt; the loss is measured in bits too."""

    unseen: int = UNSEEN

    def weight(self, batch: Batch) -> Tensor:
        return super().weight({"tokens": batch["tokens"][:, self.unseen :]})

    def inputs(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        inputs = super().inputs(network, batch)
        targets = inputs["targets"].clone()
        targets[:, : self.unseen] = IGNORE
        return inputs | {"targets": targets}

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        evaluation = super().evaluate(network, split, options)
        bits = evaluation.metrics["loss"].value / math.log(2)
        metrics = {**evaluation.metrics, "bits_per_token": Metric(value=bits, unit="bits/token")}
        return replace(evaluation, metrics=metrics, record={**evaluation.record, "unseen": self.unseen})
