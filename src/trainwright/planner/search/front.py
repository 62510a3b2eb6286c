"""The Pareto front of time against cost: what nothing else betters in both."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pareto_front(seconds: ArrayLike, usd: ArrayLike) -> NDArray[np.bool_]:
    """Returns True [P] for points on the front: no other is as fast and as cheap, and better in one of the two.

    Of equal points the first is taken. A point without a price (NaN) or without an end (infinite) is never on it.
    """
    time, cost = np.asarray(seconds, dtype=np.float64), np.asarray(usd, dtype=np.float64)
    places = np.flatnonzero(np.isfinite(time) & np.isfinite(cost))
    ordered = places[np.lexsort((cost[places], time[places]))]
    front = np.zeros(len(time), dtype=np.bool_)
    if len(ordered):
        # Slower points are on the front only if they are cheaper than all faster ones.
        least = np.minimum.accumulate(cost[ordered])
        front[ordered] = np.concatenate([[True], cost[ordered][1:] < least[:-1]])
    return front
