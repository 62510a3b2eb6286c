"""A value between those that were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable


def interpolate(point: tuple[float, ...], known: Iterable[tuple[tuple[float, ...], float]]) -> float:
    """Returns a positive value at ``point`` from values at known points.

    Shepard's method (1968): the logarithms of the values, weighted by the inverse fourth power of the distance between
    the logarithms of the coordinates. It is exact at known points and never leaves their range.
    """
    total = weights = 0.0
    for place, value in known:
        distance = sum((math.log(a) - math.log(b)) ** 2 for a, b in zip(point, place, strict=True))
        if distance < 1e-12:
            return value
        weight = distance**-2
        total += weight * math.log(value)
        weights += weight
    if not weights:
        raise ValueError("nothing was measured to interpolate between")
    return math.exp(total / weights)
