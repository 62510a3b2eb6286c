"""What answers of yes or no to several labels are worth: precision, recall, F1, exact sets, areas below curves.

Shape legend: ``documents``, ``labels``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DECIMALS = 4
"""Of the logarithm of odds, by which answers are ranked: finer ones are rounding, which differs with the batch size."""
CURVE_POINTS = 200
"""Of a drawn curve, at most about so many."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scores:
    """``has[document, label]`` says which documents have a label, ``odds`` how likely the network thinks that.

    ``odds`` are logarithms of odds: above 0 the answer is yes.
    """

    labels: tuple[str, ...]
    has: NDArray[np.bool_]
    odds: NDArray[np.floating[Any]]

    @property
    def says(self) -> NDArray[np.bool_]:
        """Returns the answers: shape ``[documents, labels]``."""
        return self.odds > 0

    @property
    def subset_accuracy(self) -> float:
        """Share of the documents of which every answer is right."""
        return float((self.says == self.has).all(axis=1).mean())

    @property
    def commonest_set_accuracy(self) -> float:
        """Returns the subset accuracy of always answering the commonest set of labels."""
        return float(np.unique(self.has, axis=0, return_counts=True)[1].max()) / len(self.has)

    def by_label(self) -> list[dict[str, Any]]:
        """Returns for each label how many documents have it, and its scores; None where nothing gives one."""
        return [
            {
                "label": label,
                "documents": int(has.sum()),
                **rates(has, says),
                "roc_area": roc_area(has, odds),
                "pr_area": average_precision(has, odds),
            }
            for label, has, says, odds in zip(self.labels, self.has.T, self.says.T, self.odds.T, strict=True)
        ]

    def averages(self) -> list[dict[str, Any]]:
        """Returns precision, recall and F1 of all answers as one (micro), and the mean of the labels' (macro).

        A label that has no such number, because no document has it and none was said to, is not in a mean.
        """
        rows = self.by_label()
        macro = {name: mean_of(rows, name) for name in ("precision", "recall", "f1")}
        return [{"average": "micro", **rates(self.has, self.says)}, {"average": "macro", **macro}]

    def headline(self) -> dict[str, float]:
        """Returns both means of F1, and the labels' mean areas below their curves; NaN where nothing gives one."""
        rows, (micro, macro) = self.by_label(), self.averages()
        scores = {"micro_f1": micro["f1"], "macro_f1": macro["f1"]}
        scores |= {name: mean_of(rows, name) for name in ("roc_area", "pr_area")}
        return {name: math.nan if value is None else value for name, value in scores.items()}

    def details(self) -> dict[str, Any]:
        """Returns the tables and the curve of ``Evaluation.details``."""
        return {"averages": self.averages(), "by_label": self.by_label(), "precision_over_recall": self.curve()}

    def curve(self) -> dict[str, Any]:
        """Returns precision over recall of all answers as one, from the surest answer on."""
        right, said = _below(self.has.ravel(), self.odds.ravel())
        every = range(0, len(said), max(1, len(said) // CURVE_POINTS))
        total = int(self.has.sum())
        rows = [{"recall": 0.0, "precision": 1.0}]
        rows += [{"recall": right[n] / total, "precision": right[n] / said[n]} for n in every if total]
        return {
            "title": "Precision over recall, all labels together",
            "x": "recall",
            "y": "precision",
            "x_title": "share of what is there that was found",
            "y_title": "share of the answers yes that are right",
            "rows": rows,
        }


def rates(has: NDArray[np.bool_], says: NDArray[np.bool_]) -> dict[str, float | None]:
    """Returns precision, recall and F1 of answers; None where nothing gives one."""
    right, true, said = int((has & says).sum()), int(has.sum()), int(says.sum())
    return {
        "precision": right / said if said else None,
        "recall": right / true if true else None,
        # 2 P R / (P + R), written without its special cases.
        "f1": 2 * right / (true + said) if true + said else None,
    }


def roc_area(has: NDArray[np.bool_], odds: NDArray[np.floating[Any]]) -> float | None:
    """Returns how often what has a label is ranked above what has not, a tie as one half; None of one kind alone.

    That is the area below the curve of true over false positives (Fawcett, 2006).
    """
    there, absent = (counts[::-1] for counts in _at_each(has, odds))  # from the lowest on
    pairs = int(there.sum()) * int(absent.sum())
    below = absent.cumsum() - absent
    return float((there * (below + absent / 2)).sum()) / pairs if pairs else None


def average_precision(has: NDArray[np.bool_], odds: NDArray[np.floating[Any]]) -> float | None:
    """Returns the area below the steps of precision over recall, without interpolation; None where no one has it."""
    there, _ = _at_each(has, odds)
    right, said = _below(has, odds)
    total = int(there.sum())
    return float((there / total * right / said).sum()) if total else None


def mean_of(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Returns the mean of a column over the rows that have it; None where none has."""
    values = [row[name] for row in rows if row[name] is not None]
    return float(sum(values) / len(values)) if values else None


def _at_each(has: NDArray[np.bool_], odds: NDArray[np.floating[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns for each different value of ``odds``, from the highest on, how many with it have a label and have not."""
    values, place = np.unique(odds.round(DECIMALS), return_inverse=True)
    there = np.bincount(place[has], minlength=len(values))
    return there[::-1], (np.bincount(place, minlength=len(values)) - there)[::-1]


def _below(has: NDArray[np.bool_], odds: NDArray[np.floating[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns how many yes would be right, and how many said, if all were that are at or above each value."""
    there, absent = _at_each(has, odds)
    return there.cumsum(), (there + absent).cumsum()
