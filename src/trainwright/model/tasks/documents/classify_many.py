"""Several labels of a document: of each label the network says whether the document has it.

The loss is the cross-entropy of every yes and no, that of ``BCEWithLogitsLoss``, which transformers has for
``problem_type: multi_label_classification``. What the head gives for a label is the logarithm of its odds, so that the
answer is yes above 0.

Shape legend: ``batch`` (documents), ``width``, ``labels``, ``sets`` (different sets of labels in the dataset).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import LABEL_SETS, TokenDataset, TokenSplit
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.tasks.documents.scores import Scores
from trainwright.model.tasks.documents.whole import Answers, DocumentTask, answered_here, form_of, listed
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.spec.recipe import Recipe


def classify_many(recipe: Recipe, dataset: TokenDataset) -> ClassifyMany:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset's documents have no lists of labels.
        RecipeError: they have labels that ``task.labels`` lacks.
    """
    form = form_of(recipe, dataset, kind=LABEL_SETS)
    recipe.task.check_labels(dataset.labels)
    has = np.zeros((len(dataset.label_sets), len(recipe.task.labels)), np.float32)
    for number, each in enumerate(dataset.label_sets):
        has[number, [recipe.task.labels.index(dataset.labels[label]) for label in each]] = 1
    return ClassifyMany(labels=recipe.task.labels, has=has, **form)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ClassifyMany(DocumentTask):
    """Cross-entropy of each label's yes or no, given the document.

    ``labels`` are in the head's order; ``has`` ``[sets, labels]`` is 1 where a set of the dataset has a label, else 0.
    """

    labels: tuple[str, ...]
    has: NDArray[np.float32]

    @property
    def unit(self) -> str:
        """Losses are averaged over the labels of all documents, each a yes or no."""
        return "label"

    @property
    def answers_each(self) -> int:
        """Returns how many answers a document has: one for each label."""
        return len(self.labels)

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns a line for documents that are cut, and one for each label that all or none of ``train`` have."""
        notes = self.cut_notes(splits)
        counts = {name: self._documents_with(split) for name, split in splits.items()}
        for number, label in enumerate(self.labels):
            having = {name: int(each[number]) for name, each in counts.items()}
            if having["train"] in (0, splits["train"].documents):
                others = {name: count for name, count in having.items() if count and name != "train"}
                where = f" ({listed(others)})" if others and not having["train"] else ""
                which = "every" if having["train"] else "no"
                notes.append(f"{which} document of the train split has the label {label!r}{where}")
        return notes

    def _documents_with(self, split: TokenSplit) -> NDArray[np.float64]:
        """Returns how many documents of a split have each label: shape ``[labels]``."""
        counts: NDArray[np.float64] = np.bincount(split.document_labels, minlength=len(self.has)) @ self.has.astype(
            "f8"
        )
        return counts

    def answers(self, split: TokenSplit, numbers: NDArray[np.int64]) -> Answers:
        """Returns ``has`` ``[batch, labels]``, 1 for each label of a document and 0 for the others."""
        return {"has": self.has[split.document_labels[numbers]]}

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns the number of answers: one for each label of each document."""
        return torch.full((), batch["has"].numel(), device=batch["has"].device)

    def loss(self, network: Network, hidden: Float[Tensor, "batch width"], inputs: Batch) -> Loss:
        """Returns the summed cross-entropy of each label's yes or no, and how many answers there are."""
        logits, here = network.logits(hidden), answered_here(inputs)
        nats = F.binary_cross_entropy_with_logits(logits, inputs["has"].to(logits.dtype), reduction="none")
        return (nats * here.unsqueeze(1)).sum(), here.sum() * len(self.labels)

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss, F1, exact sets and areas below curves; ``details`` hold them by label, and a curve."""
        nats, has, odds = 0.0, [], []
        for batch, part, outputs in self.outputs(network, split, options):
            nats += part
            has.append(batch["has"].numpy() > 0)
            odds.append(outputs)
        scores = Scores(labels=self.labels, has=np.concatenate(has), odds=np.concatenate(odds))
        metrics = {
            "loss": Metric(value=nats / scores.has.size, unit="nats/label"),
            "subset_accuracy": Metric(value=scores.subset_accuracy),
            **{name: Metric(value=value) for name, value in scores.headline().items()},
        }
        record = {
            "documents": len(scores.has),
            "cut_documents": self.cut(split, len(scores.has)),
            "commonest_set_accuracy": scores.commonest_set_accuracy,
        }
        details = scores.details() if options.detailed else {}
        return Evaluation(count=scores.has.size, metrics=metrics, record=record, details=details)
