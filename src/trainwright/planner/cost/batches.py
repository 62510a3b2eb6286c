"""Batches that divide over many numbers of ranks."""

from __future__ import annotations

import math


def divisible(sequences: int, *, unit: int = 1, within: float = 0.05) -> int:
    """Returns the multiple of ``unit`` near ``sequences`` that most powers of two divide.

    ``sequences`` themselves where no multiple is near.
    """
    least, most = math.ceil(sequences * (1 - within)), int(sequences * (1 + within))
    for power in range(sequences.bit_length(), -1, -1):
        step = unit << power
        nearest = [each for each in (sequences // step * step, -(-sequences // step) * step) if least <= each <= most]
        if nearest:
            return min(nearest, key=lambda each: abs(each - sequences))
    return sequences
