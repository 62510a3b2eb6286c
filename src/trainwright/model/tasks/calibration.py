"""Whether a classifier is as often right as it is sure: expected calibration error and its curve (Guo et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15
"""Of equal width, as in the paper (arXiv 1706.04599)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Calibration:
    """Answers by the probability of the likeliest class, in bins (low, high] of it."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    right: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    sure: NDArray[np.float64] = field(default_factory=lambda: np.zeros(BINS, np.float64))

    def add(self, probabilities: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
        """Counts answers by their probabilities, in (0, 1], and whether they were right."""
        bins = np.clip(np.ceil(probabilities * BINS).astype(np.int64) - 1, 0, BINS - 1)
        np.add.at(self.counts, bins, 1)
        np.add.at(self.right, bins, right.astype(np.int64))
        np.add.at(self.sure, bins, probabilities)

    @property
    def error(self) -> float:
        """Returns the expected calibration error: the mean of |accuracy - confidence| over bins, by their answers."""
        return float(np.abs(self.right - self.sure).sum() / self.counts.sum())

    def curve(self) -> dict[str, Any]:
        """Returns accuracy over confidence, a row for each bin with answers, as ``Evaluation.details`` has one."""
        rows = [
            {"confidence": float(sure / count), "accuracy": float(right / count), "answers": int(count)}
            for count, right, sure in zip(self.counts, self.right, self.sure, strict=True)
            if count
        ]
        return {
            "title": "Calibration",
            "x": "confidence",
            "y": "accuracy",
            "x_title": "probability of the answer",
            "y_title": "share of right answers",
            "rows": rows,
        }
