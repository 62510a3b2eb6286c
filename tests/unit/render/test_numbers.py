from __future__ import annotations

import pytest

from trainwright.render.numbers import amount, measured, number


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
