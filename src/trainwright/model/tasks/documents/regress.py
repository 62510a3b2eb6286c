"""A number of a document: the head's one output, in standard deviations from the mean of the train split's numbers.

The loss is the squared error, that of ``MSELoss``, which transformers has for ``problem_type: regression``, or the
absolute error. Errors are measured in the numbers' own unit.

Shape legend: ``batch`` (documents), ``width``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import NUMBERS, TokenDataset, TokenSplit
from trainwright.core.errors import DataError
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.tasks.documents.errors import Errors
from trainwright.model.tasks.documents.whole import Answers, DocumentTask, answered_here, form_of
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.spec.parts.targets import TargetScale
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.task import TASKS
from trainwright.spec.sections.tasks.keys import RegressSection

LOSS_UNIT = TASKS["regress"].loss_unit


def regress(recipe: Recipe, dataset: TokenDataset) -> Regress:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset's documents have no numbers, or those of its train split are all equal.
    """
    form, how, scale = form_of(recipe, dataset, kind=NUMBERS), recipe.task, dataset.scale
    assert isinstance(how, RegressSection)
    if scale is None or not scale.usable:
        raise DataError(
            "the numbers of the train split do not differ, so that none can be told from another",
            where=dataset.path,
            seen="no document" if scale is None else f"{scale.mean:g} in every document",
            expected="two different numbers at least",
            fix="check label_key or label_column",
        )
    return Regress(scale=scale, error=how.error, **form)


@dataclass(frozen=True, kw_only=True, slots=True)
class Regress(DocumentTask):
    """Squared (``mse``) or absolute (``mae``) error of a document's number, as a network gives it: in ``scale``."""

    scale: TargetScale
    error: Literal["mse", "mae"] = "mse"

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns a line for documents that are cut."""
        return self.cut_notes(splits)

    def answers(self, split: TokenSplit, numbers: NDArray[np.int64]) -> Answers:
        """Returns the ``number`` of each document, in the scale."""
        scaled = (split.document_numbers[numbers] - self.scale.mean) / self.scale.std
        return {"number": scaled.astype(np.float32)}

    def loss(self, network: Network, hidden: Float[Tensor, "batch width"], inputs: Batch) -> Loss:
        """Returns the summed error of the numbers, and how many there are."""
        logits, here = network.logits(hidden).squeeze(1), answered_here(inputs)
        told = logits.to(torch.promote_types(logits.dtype, torch.float32))
        off = torch.where(here, told - inputs["number"].to(told.dtype), 0)
        return (off.square() if self.error == "mse" else off.abs()).sum(), here.sum()

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss, errors and R2; ``details`` hold what is furthest off, and the predicted over the true."""
        total, told = 0.0, []
        for _, part, outputs in self.outputs(network, split, options):
            total += part
            told.append(outputs[:, 0].astype(np.float64))
        predicted = np.concatenate(told) * self.scale.std + self.scale.mean
        errors = Errors(true=split.document_numbers[: len(predicted)], predicted=predicted)
        metrics = {
            "loss": Metric(value=total / len(predicted), unit=f"{LOSS_UNIT}/document"),
            "mse": Metric(value=errors.mse),
            "mae": Metric(value=errors.mae),
            "r2": Metric(value=errors.r2),
        }
        always = Errors(true=errors.true, predicted=np.full_like(predicted, self.scale.mean))
        record = {
            "cut_documents": self.cut(split, len(predicted)),
            "mse_of_train_mean": always.mse,
            "mae_of_train_mean": always.mae,
        }
        details = errors.details() if options.detailed else {}
        return Evaluation(count=len(predicted), metrics=metrics, record=record, details=details)
