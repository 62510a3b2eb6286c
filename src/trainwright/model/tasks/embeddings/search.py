"""How well embeddings find what belongs to a text, among all candidates of a split.

Shape legend: ``records``, ``texts`` (of a record: anchor, positive, negatives), ``width``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ANCHORS_AT_ONCE = 256
CURVE_POINTS = 40
HARDEST = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """Of each anchor the rank of its positive among all candidates, from 1; ``candidates`` says how many there are."""

    ranks: NDArray[np.float64]
    candidates: int

    def recall(self, first: int) -> float:
        """Returns the share of anchors whose positive is among the ``first`` candidates."""
        return float((self.ranks <= first).mean())

    @property
    def reciprocal_rank(self) -> float:
        """Returns the mean of 1 / rank (MRR)."""
        return float((1 / self.ranks).mean())

    def hardest(self) -> list[dict[str, Any]]:
        """Returns the anchors whose positives are found last, a row each."""
        order = np.argsort(-self.ranks, kind="stable")[:HARDEST]
        return [{"pair": int(each), "rank": float(self.ranks[each])} for each in order]

    def curve(self) -> dict[str, Any]:
        """Returns the share of positives found over how many candidates are looked at."""
        looked = np.unique(np.geomspace(1, self.candidates, CURVE_POINTS).round().astype(np.int64))
        return {
            "title": "Positives found among the first candidates",
            "x": "first",
            "y": "recall",
            "x_title": f"candidates looked at, of {self.candidates:,}",
            "y_title": "share of anchors whose positive is among them",
            "rows": [{"first": int(count), "recall": self.recall(int(count))} for count in looked],
        }


def search(made: NDArray[np.float32], keys: NDArray[np.int64]) -> Found:
    """Returns how well each anchor finds its positive among the different positives and negatives of all records.

    A rank is 1, and one more for each candidate that is nearer to the anchor, and a half for each that is as near.

    Args:
        made: embeddings ``[records, texts, width]`` of length 1.
        keys: a number of each text ``[records, texts]``, equal for equal texts.
    """
    others = keys[:, 1:].reshape(-1)
    different, first, place = np.unique(others, return_index=True, return_inverse=True)
    candidates = made[:, 1:].reshape(-1, made.shape[-1])[first]
    own = place.reshape(keys[:, 1:].shape)[:, 0]
    ranks = np.empty(len(made))
    for start in range(0, len(made), ANCHORS_AT_ONCE):
        rows = slice(start, start + ANCHORS_AT_ONCE)
        scores = (made[rows, 0] @ candidates.T).round(6)  # what differs by rounding alone is as near
        mine = np.take_along_axis(scores, own[rows, None], axis=1)
        ranks[rows] = 0.5 + (scores > mine).sum(axis=1) + 0.5 * (scores == mine).sum(axis=1)
    return Found(ranks=ranks, candidates=len(different))
