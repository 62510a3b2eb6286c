from __future__ import annotations

import pytest

from trainwright.render.numbers import amount, energy, measured, number


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (512.0, "bytes", "512 bytes"),
        (2.0**30, "bytes", "1 GiB"),
        (0.5, "s", "500 ms"),
        (2.95, "$", "$2.95"),
        (4e-9, "s", "under 1 µs"),
        (2e12, "FLOP", "2T FLOP"),
        (0.25, "", "0.25"),
    ],
)
def test_amounts(value, unit, text):
    assert amount(value, unit) == text


def test_numbers_have_no_exponent():
    assert [number(value) for value in (0.5, 12.0, 50677.0, 7411000.0)] == ["0.5", "12", "50,677", "7.411M"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (True, "yes"),
        (12345, "12,345"),
        (0.0, "0.0000"),
        (1.2683, "1.2683"),
        (442.1385, "442.1"),
        (1.25e-5, "1.25e-05"),
        (-12345.0, "-12,345"),
        ("dusk", "dusk"),
    ],
)
def test_a_measured_value_says_neither_nothing_nor_too_much(value, text):
    assert measured(value) == text


@pytest.mark.parametrize(
    ("kwh", "text"), [(0.09998, "0.1 kWh"), (9356.2, "9,360 kWh"), (653_667, "654,000 kWh"), (1.0123e6, "1.01M kWh")]
)
def test_an_energy_has_three_digits(kwh, text):
    assert energy(kwh) == text
