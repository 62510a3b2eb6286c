"""Intervals against simulated measurements whose truth is known."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from trainwright.stages.optimize.intervals import gain, median_interval


@pytest.mark.parametrize(("count", "k"), [(6, 1), (8, 1), (9, 2), (20, 6), (25, 8), (50, 18)])
def test_the_ends_are_those_of_the_sign_test(count, k) -> None:
    """Ranks from the table of the sign test at 95 %, such as Conover (1999), table A3."""
    found = median_interval(range(1, count + 1))
    assert (found.low, found.high) == (k, count + 1 - k)
    assert found.mid == (count + 1) / 2


@pytest.mark.parametrize("count", [6, 20, 33])
def test_the_true_median_is_inside_in_nineteen_of_twenty_cases(count) -> None:
    dice = random.Random(count)
    inside = 0
    for _ in range(4000):
        found = median_interval([dice.lognormvariate(0.0, 0.4) for _ in range(count)])
        inside += found.low <= 1.0 <= found.high
    assert inside / 4000 > 0.94


def steps(dice: random.Random, seconds: float, *, noise: float) -> list[float]:
    return [seconds * math.exp(dice.gauss(0.0, noise)) for _ in range(20)]


def test_a_technique_without_effect_is_seldom_found_to_have_one() -> None:
    dice = random.Random(1)
    wrong = 0
    for _ in range(2000):
        found = gain(*(steps(dice, 2.0, noise=0.05) for _ in range(3)))
        wrong += not found.low <= 1.0 <= found.high
    assert wrong / 2000 < 0.05


def test_an_effect_above_the_noise_is_found_and_is_what_it_is() -> None:
    dice = random.Random(2)
    found = [
        gain(steps(dice, 2.0, noise=0.05), steps(dice, 2.0 / 1.2, noise=0.05), steps(dice, 2.0, noise=0.05))
        for _ in range(200)
    ]
    assert sum(each.low > 1 for each in found) > 190
    assert sum(each.low <= 1.2 <= each.high for each in found) > 190


def test_a_machine_that_drifts_is_not_taken_for_a_technique() -> None:
    """Each part runs 10 % slower than the one before: neither a gain nor a loss is sure."""
    found = gain([1.0] * 20, [1.1] * 20, [1.21] * 20)
    assert (found.low, found.high) == pytest.approx((1 / 1.1, 1.1))
    assert found.mid == pytest.approx(1.0)


def test_more_drift_is_never_more_certainty() -> None:
    widths = [gain([1.0] * 20, [0.9] * 20, [end] * 20) for end in (1.0, 1.05, 1.2)]
    assert all(one.high - one.low <= other.high - other.low for one, other in pairwise(widths))
