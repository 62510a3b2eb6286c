"""How surely a way to do a run ends by its deadline, and the first that surely does."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from trainwright.planner.search.ranking import Option, Recommendation
from trainwright.spec.plan import INTERVAL


def chance_in_time(option: Option, deadline_s: float) -> float:
    """Returns the probability that ``option`` ends within ``deadline_s``, its time lognormal over its range.

    The half of the range on the deadline's side counts: 0.5 where the deadline is the expected time, 0.95 where it is
    the range's end.
    """
    end_s = option.high_s if deadline_s >= option.seconds else option.low_s
    width, room = abs(math.log(end_s / option.seconds)), math.log(deadline_s / option.seconds)
    if not width:
        return float(room >= 0)
    return NormalDist().cdf(INTERVAL * room / width)


def surely_in_time(options: Iterable[Option], deadline_s: float) -> Option | None:
    """Returns the first of ``options`` that surely fits and whose whole range ends within ``deadline_s``.

    Its price is without doubt.
    """
    believed = (each for each in options if each.usd is not None and not each.doubt and not each.unsure)
    return next((each for each in believed if each.high_s <= deadline_s), None)


def chance_of(recommendation: Recommendation) -> float | None:
    """Returns the probability that the best way is in time; None where there is no deadline, or no way."""
    deadline_s, options = recommendation.goals.deadline_s, recommendation.options
    return chance_in_time(options[0], deadline_s) if options and deadline_s is not None else None
