"""Telling the class of a document.

Shape legend: ``batch`` (documents), ``width``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import LABELLED, TokenDataset, TokenSplit
from trainwright.model.losses import IGNORE, Loss
from trainwright.model.network import Network
from trainwright.model.tasks.confusion import Confusion
from trainwright.model.tasks.documents.whole import Answers, DocumentTask, form_of, listed
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.spec.recipe import Recipe


def classify(recipe: Recipe, dataset: TokenDataset) -> Classify:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset's documents have no labels.
        RecipeError: they have labels that ``task.labels`` lacks.
    """
    form = form_of(recipe, dataset, kind=LABELLED)
    recipe.task.check_labels(dataset.labels)
    return Classify(
        labels=recipe.task.labels,
        class_of_label=tuple(recipe.task.labels.index(name) for name in dataset.labels),
        **form,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Classify(DocumentTask):
    """Cross-entropy of a document's class, given the document.

    ``labels`` name the classes in the head's order; ``class_of_label`` says which class each label of the dataset is.
    """

    labels: tuple[str, ...]
    class_of_label: tuple[int, ...]

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns a line for documents that are cut, and one for each label that no document of ``train`` has."""
        notes = self.cut_notes(splits)
        documents = {name: self._by_class(split) for name, split in splits.items()}
        for number, label in enumerate(self.labels):
            if not documents["train"][number]:
                others = {name: int(counts[number]) for name, counts in documents.items() if counts[number]}
                where = f" ({listed(others)})" if others else ""
                notes.append(f"no document of the train split has the label {label!r}{where}")
        return notes

    def _by_class(self, split: TokenSplit) -> NDArray[np.int64]:
        """How many documents of a split each class has."""
        return np.bincount(self._classes(split.document_labels), minlength=len(self.labels))

    def _classes(self, labels: NDArray[np.uint16]) -> NDArray[np.int64]:
        return np.array(self.class_of_label, np.int64)[labels]

    def answers(self, split: TokenSplit, numbers: NDArray[np.int64]) -> Answers:
        """Returns the ``class`` of each document."""
        return {"class": self._classes(split.document_labels[numbers])}

    def loss(self, network: Network, hidden: Float[Tensor, "batch width"], inputs: Batch) -> Loss:
        """Returns the summed cross-entropy of the classes, and how many there are."""
        classes = torch.where(inputs["here"], inputs["class"], IGNORE) if "here" in inputs else inputs["class"]
        return network.head_loss(hidden, classes)

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss, accuracy and F1; ``details`` hold them by label, and the confusion matrix."""
        confusion, nats = Confusion.empty(self.labels), 0.0
        for batch, part, outputs in self.outputs(network, split, options):
            nats += part
            confusion.add(batch["class"].numpy(), outputs.argmax(axis=-1))
        metrics = {
            "loss": Metric(value=nats / confusion.documents, unit="nats/document"),
            "accuracy": Metric(value=confusion.accuracy),
            "macro_f1": Metric(value=confusion.macro_f1),
        }
        cut = self.cut(split, confusion.documents)
        record = {"cut_documents": cut, "commonest_class_accuracy": confusion.commonest_class_accuracy}
        details = {"by_label": confusion.by_label(), "confusion": confusion.to_json()} if options.detailed else {}
        return Evaluation(count=confusion.documents, metrics=metrics, record=record, details=details)
