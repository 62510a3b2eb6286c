"""How far predicted numbers are off: mean squared and absolute error, R2, what is furthest off, a picture of all.

Shape legend: ``documents``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CURVE_POINTS = 200
"""Of a drawn picture, at most about so many."""
FURTHEST = 10
"""Documents that are named because they are furthest off, at most."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Errors:
    """``true`` and ``predicted`` numbers of the same documents, one at least, in one unit: shape ``[documents]``."""

    true: NDArray[np.float64]
    predicted: NDArray[np.float64]

    @property
    def off(self) -> NDArray[np.float64]:
        """Returns predicted less true: shape ``[documents]``."""
        return self.predicted - self.true

    @property
    def mse(self) -> float:
        """Mean squared error, in the square of the numbers' unit."""
        return float(np.square(self.off).mean())

    @property
    def mae(self) -> float:
        """Mean absolute error, in the numbers' unit."""
        return float(np.abs(self.off).mean())

    @property
    def r2(self) -> float:
        """Returns 1 less the squared errors over those of the true numbers' own mean; NaN where these do not differ.

        1 is without error, 0 as good as that mean, below 0 worse (the coefficient of determination).
        """
        if self.true.min() == self.true.max():
            return math.nan
        return 1 - self.mse / float(np.square(self.true - self.true.mean()).mean())

    def details(self) -> dict[str, Any]:
        """Returns the table and the picture of ``Evaluation.details``."""
        return {"furthest_off": self.furthest(), "predicted_over_true": self.picture()}

    def furthest(self) -> list[dict[str, Any]]:
        """Returns the documents that are furthest off, by their number in the split from 0; of equals the first."""
        order = np.argsort(-np.abs(self.off), kind="stable")[:FURTHEST]
        return [{"document": int(n), "true": float(self.true[n]), "predicted": float(self.predicted[n])} for n in order]

    def picture(self) -> dict[str, Any]:
        """Returns predicted over true number, from the lowest true number on: without error all lie on the diagonal."""
        order = np.argsort(self.true, kind="stable")
        chosen = order[:: max(1, len(order) // CURVE_POINTS)]
        return {
            "title": "Predicted over true number",
            "x": "true",
            "y": "predicted",
            "x_title": "number that the document has",
            "y_title": "number that the model tells",
            "diagonal": True,
            "rows": [{"true": float(self.true[n]), "predicted": float(self.predicted[n])} for n in chosen],
        }
