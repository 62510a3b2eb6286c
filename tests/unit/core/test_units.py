from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import RecipeError
from trainwright.core.units import (
    Duration,
    format_bytes,
    format_count,
    format_factor,
    format_seconds,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("80 GiB", 85_899_345_920),
        ("1.5 TB", 1_500_000_000_000),
        ("500MB", 500_000_000),
        ("12", 12),
        ("12 b", 12),
        ("1_024 KiB", 1_048_576),
        (".5kb", 500),
        ("1e3 bytes", 1000),
        (4096, 4096),
        ("0", 0),
    ],
)
def test_sizes(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30 min", 1800),
        ("14d", 1_209_600),
        ("250 ms", 0.25),
        ("1.5 h", 5400),
        ("1 week", 604_800),
        (8, 8.0),
        ("7", 7.0),
    ],
)
def test_times(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "count"),
    [("300B", 300_000_000_000), ("1.5M", 1_500_000), ("4_096", 4096), ("1e21", 10**21), ("64k", 64_000), (5, 5)],
)
def test_counts(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("parse", [parse_bytes, parse_seconds, parse_count, parse_duration])
@pytest.mark.parametrize("text", ["", "many", "-3", "3 apples", "1e999", "..5", "3 3", "nan", "inf", True], ids=repr)
def test_what_is_no_quantity_is_refused(parse, text):
    with pytest.raises(RecipeError):
        parse(text)


@pytest.mark.parametrize("parse", [parse_bytes, parse_seconds, parse_count])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1])
def test_numbers_that_are_no_quantity_are_refused(parse, value):
    with pytest.raises(RecipeError):
        parse(value)


@pytest.mark.parametrize("parse", [parse_bytes, parse_count])
@pytest.mark.parametrize("value", [2.5, "2.5", "0.25"], ids=repr)
def test_halves_of_whole_things_are_refused(parse, value):
    with pytest.raises(RecipeError, match="whole"):
        parse(value)


@given(st.integers(0, 2**62))
def test_whole_numbers_are_kept_exactly(count):
    assert parse_count(str(count)) == count
    assert parse_bytes(str(count)) == count


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("300B tok", 3e11, "tokens"),
        ("20 tok/param", 20, "tokens_per_parameter"),
        ("2k steps", 2000, "steps"),
        ("3 epochs", 3, "epochs"),
        ("1.5M tokens", 1.5e6, "tokens"),
        ("1 Epoch", 1, "epochs"),
        ("0.5 epochs", 0.5, "epochs"),
    ],
)
def test_durations(text, value, unit):
    assert parse_duration(text) == Duration(value=value, unit=unit)


def test_a_bare_number_is_no_duration():
    for value in (2000, "2000", "2k"):
        with pytest.raises(RecipeError, match="unknown unit of duration"):
            parse_duration(value)


@pytest.mark.parametrize("text", ["300B tok", "20 tok/param", "2,000 steps", "3 epochs"])
def test_a_duration_reads_what_it_prints(text):
    assert str(parse_duration(text)) == text
    assert parse_duration(str(parse_duration(text))) == parse_duration(text)


def test_durations_in_tokens():
    assert parse_duration("10 steps").tokens(batch_tokens=512) == 5120
    assert parse_duration("1M tok").tokens(batch_tokens=512) == 1_000_000
    assert parse_duration("20 tok/param").tokens(batch_tokens=1, parameters=124) == 2480
    assert parse_duration("1.5 epochs").tokens(batch_tokens=1, epoch_tokens=1000) == 1500
    with pytest.raises(RecipeError, match="not known yet"):
        parse_duration("1 epoch").tokens(batch_tokens=1, parameters=5)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (65_712_999_629, "61.2 GiB"),
        (3 * 2**50, "3 PiB"),
        (-2048, "-2 KiB"),
        (1024**2 - 1, "1 MiB"),
    ],
)
def test_sizes_are_printed_in_binary_units(size_bytes, text):
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0081, "8.1 ms"),
        (2.4e-6, "2.4 µs"),
        (0.0009999, "1 ms"),
        (12.3, "12.3 s"),
        (245, "4 min 05 s"),
        (12_000, "3 h 20 min"),
        (985_000, "11.4 days"),
        (999 * 86_400, "999 days"),
        (355 * 365 * 86_400, "355 years"),
        (1e4 * 365 * 86_400, "10,000 years"),
        (59.999, "1 min 00 s"),
        (3599.9, "1 h 00 min"),
        (0.9999, "1 s"),
        (172_799, "2 days"),
        (float("inf"), "no end"),
        (float("nan"), "unknown"),
    ],
)
def test_times_are_printed_in_two_units(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5e6, "1.5M"),
        (3e11, "300B"),
        (4096, "4,096"),
        (412_345.6, "412,346"),
        (0.5, "0.5"),
        (1e12, "1T"),
        (999_999_999, "1B"),
        (0, "0"),
        (-2e6, "-2M"),
    ],
)
def test_counts_are_printed_short(value, text):
    assert format_count(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.514, "1.51"), (9.996, "10.0"), (12.34, "12.3"), (650.75, "651"), (2780.4, "2,780")]
)
def test_factors_have_no_more_digits_than_say_something(value, text):
    assert format_factor(value) == text


@pytest.mark.parametrize("text", ["1,5T", "2,50", "1,5000", ",5", "1,234,5"])
def test_a_comma_that_parts_no_thousands_is_no_number(text):
    with pytest.raises(RecipeError, match="cannot read a quantity"):
        parse_count(text)


def test_commas_part_thousands():
    assert parse_count("1,500M") == 1_500_000_000 and parse_count("4,096") == 4096
