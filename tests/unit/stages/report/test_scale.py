from __future__ import annotations

import math

import pytest

from trainwright.stages.report.scale import bytes_unit, linear, logarithmic, seconds_unit, short


def test_linear_ends_at_round_ticks_and_maps_linearly():
    axis = linear([0.37, 9.2], start_px=100, end_px=0)
    assert axis.ticks == (0, 2, 4, 6, 8, 10)
    assert (axis(0), axis(5), axis(10)) == (100, 50, 0)


def test_linear_from_zero_and_of_one_value():
    assert linear([3.0, 4.0], start_px=0, end_px=1, zero=True).low == 0
    flat = linear([7.0, 7.0], start_px=0, end_px=1)
    assert flat.low < 7 < flat.high


@pytest.mark.parametrize("make", [linear, logarithmic])
@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, math.nan], [0.0], [-1.0, 0.0], [5.0]])
def test_any_values_give_an_axis(make, values):
    axis = make(values, start_px=0, end_px=100)
    assert axis.low < axis.high
    assert all(math.isfinite(axis(tick)) for tick in axis.ticks)


def test_ticks_are_round_in_their_unit():
    mib = 2.0**20
    axis = linear([616 * mib], start_px=0, end_px=1, zero=True, unit=mib)
    assert [tick / mib for tick in axis.ticks] == [0, 200, 400, 600, 800]
    minutes = linear([240.0], start_px=0, end_px=1, zero=True, unit=60.0)
    assert [tick / 60 for tick in minutes.ticks] == [0, 1, 2, 3, 4]


def test_logarithmic_maps_equal_ratios_to_equal_lengths():
    axis = logarithmic([1.0, 1000.0], start_px=0, end_px=300)
    assert axis(10) == pytest.approx(100)
    assert axis(100) == pytest.approx(200)
    assert all(axis.low * 0.99 <= tick <= axis.high * 1.01 for tick in axis.ticks)
    assert 2 <= len(axis.ticks) <= 6


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1500, "1.5k"),
        (20_000, "20k"),
        (2.5e6, "2.5M"),
        (0.25, "0.25"),
        (3e-4, "3e-4"),
        (-2.0, "-2"),
        (math.nan, "?"),
    ],
)
def test_short(value, text):
    assert short(value) == text


def test_units_fit_the_largest_value():
    assert bytes_unit(3 * 2**30)(3 * 2**30) == "3 GiB"
    assert bytes_unit(12)(12) == "12 B"
    assert seconds_unit(240)(180) == "3 min"
    assert seconds_unit(90)(90) == "90 s"
    assert seconds_unit(0.2)(0.05) == "50 ms"


@pytest.mark.parametrize("values", [[5.494, 5.61], [0.1001, 0.1002], [5.5]])
def test_values_without_a_round_number_between_them_have_ticks_too(values):
    axis = logarithmic(values, start_px=0, end_px=100)
    assert axis.ticks
    assert all(axis.low * 0.999 <= tick <= axis.high * 1.001 for tick in axis.ticks)
