"""The confusion matrix of a classifier and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Confusion:
    """``counts[true, predicted]`` documents of each pair of classes; ``labels`` name the classes."""

    labels: tuple[str, ...]
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls, labels: tuple[str, ...]) -> Confusion:
        """Returns a matrix of no documents."""
        return cls(labels=labels, counts=np.zeros((len(labels), len(labels)), np.int64))

    def add(self, true: NDArray[np.int64], predicted: NDArray[np.int64]) -> None:
        """Count documents by their true and their predicted class."""
        np.add.at(self.counts, (true, predicted), 1)

    @property
    def documents(self) -> int:
        """How many documents were counted."""
        return int(self.counts.sum())

    @property
    def accuracy(self) -> float:
        """Share of the documents whose class was predicted."""
        return float(np.trace(self.counts)) / self.documents

    @property
    def commonest_class_accuracy(self) -> float:
        """Returns the accuracy of always answering the commonest class: what a classifier must beat."""
        return float(self.counts.sum(axis=1).max()) / self.documents

    @property
    def macro_f1(self) -> float:
        """Returns the mean F1 of the classes that occur or were predicted, each with the same weight."""
        scores = [row["f1"] for row in self.by_label() if row["f1"] is not None]
        return float(sum(scores) / len(scores))

    def by_label(self, counted: str = "documents") -> list[dict[str, Any]]:
        """Returns how many of each class were ``counted``, precision, recall and F1; None where nothing gives it."""
        rows = []
        for number, label in enumerate(self.labels):
            right = int(self.counts[number, number])
            true, predicted = int(self.counts[number].sum()), int(self.counts[:, number].sum())
            rows.append(
                {
                    "label": label,
                    counted: true,
                    "precision": right / predicted if predicted else None,
                    "recall": right / true if true else None,
                    # 2 P R / (P + R), written without its special cases.
                    "f1": 2 * right / (true + predicted) if true + predicted else None,
                }
            )
        return rows

    def to_json(self) -> dict[str, Any]:
        """Returns the labels and the counts, a row for each true class."""
        return {"labels": self.labels, "counts": self.counts.tolist()}
