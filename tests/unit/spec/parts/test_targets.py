"""Mean and deviation of numbers, worked out by hand."""

from __future__ import annotations

import math

import pytest

from trainwright.spec.parts.targets import TargetScale


def test_mean_and_deviation_are_over_the_count() -> None:
    assert TargetScale.of([1.0, 3.0, 5.0, 7.0]) == TargetScale(mean=4.0, std=math.sqrt(5))
    assert TargetScale.of([1e16, 1.0, -1e16]).mean == 1 / 3  # a plain sum would give 0


@pytest.mark.parametrize(("numbers", "usable"), [([2.0, 2.0], False), ([1e200, -1e200], False), ([1.0, 2.0], True)])
def test_equal_numbers_and_too_large_ones_are_of_no_use(numbers, usable) -> None:
    assert TargetScale.of(numbers).usable is usable


def test_sums_that_overflow_have_no_deviation() -> None:
    assert TargetScale.of([1.7e308, 1.6e308]).std == math.inf


@pytest.mark.parametrize(("number", "count"), [(0.1, 3), (0.3, 109), (7.7, 9), (1.7e308, 2), (4.5, 1)])
def test_equal_numbers_have_no_deviation_though_their_mean_is_rounded(number, count) -> None:
    scale = TargetScale.of([number] * count)
    assert scale == TargetScale(mean=number, std=0.0)
    assert not scale.usable
