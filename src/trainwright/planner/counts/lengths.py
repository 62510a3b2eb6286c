"""Lengths of examples that are not packed: how they vary, and the longest of several, to which all are padded.

Nobody prints the lengths of a data set but for their mean and their longest. Assumed: their logarithm is normally
distributed, as wide as puts the longest of all examples where it is, and none is longer.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.spec.workload import Workload

NORMAL = NormalDist()
POINTS = 256
"""Quantiles that a mean is taken over: within 1 % of a million draws."""


def spread_of(mean: float, longest: float, examples: float) -> float:
    """Returns the deviation of the lengths' logarithm.

    Of so many draws the longest is at the quantile z of 1 - 1 / ``examples``; a log-normal length of this mean has
    log(longest / mean) = s z - s^2 / 2 there, whose smaller solution for s is taken.
    """
    z = NORMAL.inv_cdf(1 - 1 / max(2.0, examples))
    return z - math.sqrt(max(0.0, z * z - 2 * math.log(max(1.0, longest / mean))))


@lru_cache(maxsize=4096)
def longest_of(draws: float, *, mean: float, longest: float, spread: float) -> float:
    """Returns the expected longest of so many examples, at most ``longest``: the mean of F^-1(u^(1 / draws)) over u."""
    if spread == 0.0:
        return min(mean, longest)
    start = math.log(mean) - spread * spread / 2
    places = (NORMAL.inv_cdf(((point + 0.5) / POINTS) ** (1 / draws)) for point in range(POINTS))
    return sum(min(longest, math.exp(start + spread * place)) for place in places) / POINTS


def padded_tokens(workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the tokens [L] to which an example of a micro batch is padded on the slowest rank, in the mean.

    Ranks that gather weights (ZeRO-3, FSDP) wait for the longest micro batch of all each time. Others wait once a step,
    where the sums of several micro batches differ by the root of their number less.
    """
    own, slowest = padded_lengths(workload, layouts)
    waits = np.where(layouts.zero_stage >= 3, 1.0, np.sqrt(layouts.micro_batches))
    return np.asarray(np.round(own + (slowest - own) / waits))


def padded_lengths(workload: Workload, layouts: Layouts) -> tuple[Numbers, Numbers]:
    """Returns the mean lengths [L] of the longest example of a rank's micro batch, and of all ranks' together."""
    if workload.example_tokens is None:
        whole = np.full(len(layouts), float(workload.sequence_tokens))
        return whole, whole
    sizes = np.stack([layouts.micro_batch, layouts.micro_batch * layouts.data_parallel])
    draws, places = np.unique(sizes, return_inverse=True)
    mean, most, spread = float(workload.example_tokens), float(workload.sequence_tokens), workload.example_spread
    expected = np.asarray([longest_of(float(each), mean=mean, longest=most, spread=spread) for each in draws])
    own, slowest = expected[places.reshape(sizes.shape)]
    return own, slowest
