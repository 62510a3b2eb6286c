"""Where the numbers lie that documents have, and how wide they spread: what a network's outputs are told in."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum, inf, isfinite, sqrt

from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetScale:
    """``mean`` and standard deviation ``std`` of the numbers of a train split, in their own unit.

    A network gives ``(number - mean) / std``.
    """

    mean: float
    std: float

    @classmethod
    def of(cls, numbers: Iterable[float]) -> TargetScale:
        """Returns the scale of one or more numbers: over their count, not one less; the sums are rounded once.

        Of equal numbers ``std`` is 0, though a mean may be rounded. Where a sum leaves what a float holds, infinite.
        """
        each = list(numbers)
        try:
            mean = fsum(each) / len(each) if min(each) < max(each) else each[0]
            return cls(mean=mean, std=sqrt(fsum((number - mean) * (number - mean) for number in each) / len(each)))
        except OverflowError:
            return cls(mean=0.0, std=inf)

    @property
    def usable(self) -> bool:
        """Returns whether a number can be told in it: not where all are equal."""
        return isfinite(self.mean) and isfinite(self.std) and self.std > 0
