"""How much faster one configuration is than another, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainwright.spec.plan import Interval

CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> Interval:
    """Returns the median, and an interval that holds the true one in ``CONFIDENCE`` of cases whatever the values' law.

    Its ends are the k-th values from both ends: as many lie below the true median as heads come up in n throws.
    All values, where they are too few for that confidence.
    """
    ordered, n = sorted(values), len(values)
    below, k = 0.0, 0
    while k < (n - 1) // 2 and below + math.comb(n, k) / 2**n <= (1 - CONFIDENCE) / 2:
        below += math.comb(n, k) / 2**n
        k += 1
    k = max(1, k)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return Interval(low=ordered[k - 1], mid=middle, high=ordered[n - k])


def gain(before: Sequence[float], with_it: Sequence[float], after: Sequence[float]) -> Interval:
    """Returns how many times as fast the middle one is as the two around it, from seconds of steps.

    The interval holds the ratio to each of the two with the uncertainty of both medians, so that a machine whose speed
    drifts widens it by its drift.
    """
    other = _logarithms(with_it)
    ratios = [_difference(_logarithms(each), other) for each in (before, after)]
    return Interval(
        low=math.exp(min(each.low for each in ratios)),
        mid=math.exp(sum(each.mid for each in ratios) / len(ratios)),
        high=math.exp(max(each.high for each in ratios)),
    )


def _logarithms(seconds: Sequence[float]) -> Interval:
    return median_interval([math.log(each) for each in seconds])


def _difference(one: Interval, other: Interval) -> Interval:
    """Returns the difference of two independent values."""
    mid = one.mid - other.mid
    below = math.hypot(one.mid - one.low, other.high - other.mid)
    above = math.hypot(one.high - one.mid, other.mid - other.low)
    return Interval(low=mid - below, mid=mid, high=mid + above)
