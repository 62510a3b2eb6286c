from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainwright.spec.sections.data import CleanSection
from trainwright.stages.data.cleaning.cleaner import Cleaner


def clean(text, **rules):
    return Cleaner(CleanSection(**rules))(text)


@pytest.mark.parametrize(
    ("rules", "text", "expected"),
    [
        ({}, "\ufeffa\r\nb\rc\n", "a\nb\nc\n"),
        ({"newlines": "keep"}, "a\r\nb\rc\n", "a\r\nb\rc\n"),
        ({"unicode": "nfc"}, "e\u0301 \ufb01", "\u00e9 \ufb01"),
        ({"unicode": "nfkc"}, "e\u0301 \ufb01", "\u00e9 fi"),
        ({}, "e\u0301 \ufb01", "e\u0301 \ufb01"),
        ({}, "form\x0cfeed\ttab", "form\x0cfeed\ttab"),
    ],
)
def test_normalisation(rules, text, expected):
    assert clean(text, **rules) == (expected, None)


@pytest.mark.parametrize(
    ("rules", "text", "reason"),
    [
        ({}, "", "empty"),
        ({}, "\ufeff", "empty"),
        ({}, " \n\t\u3000\r\n", "only whitespace"),
        ({"min_characters": 5}, "four", "under 5 characters"),
        ({"max_characters": 3}, "four", "over 3 characters"),
        ({}, "ab\x00\x01", "over 10% control characters"),
        ({}, "\x85" * 3 + "a" * 9, "over 10% control characters"),
        ({}, "a\ud800b", "lone surrogates, which UTF-8 cannot say"),
        ({"filters": ("few-letters",)}, "+-*/", "under 25% letters and digits"),
    ],
)
def test_each_drop_has_its_reason(rules, text, reason):
    assert clean(text, **rules)[1] == reason


def test_limits_are_inclusive():
    assert clean("four", min_characters=4, max_characters=4)[1] is None
    assert clean("a" * 9 + "\x00")[1] is None
    assert clean("\x00\x00", max_control_ratio=1.0)[1] is None
    assert clean("", min_characters=0) == ("", None)
    assert clean(" \n", min_characters=0) == (" \n", None)


def test_length_counts_after_cleaning():
    assert clean("\ufeffa\r\nb", max_characters=3) == ("a\nb", None)


def test_a_misspelt_filter_is_refused_by_the_recipe():
    with pytest.raises(ValidationError, match="'long-lines'"):
        CleanSection(filters=("nope",))


@given(text=st.text(), form=st.sampled_from(["nfc", "nfkc", "none"]))
def test_cleaning_twice_changes_nothing(text, form):
    rules = {"unicode": form, "max_control_ratio": 1.0, "min_characters": 0}
    once, reason = clean(text, **rules)
    assert reason is None
    assert clean(once, **rules) == (once, None)
    assert "\r" not in once
    assert form == "none" or unicodedata.is_normalized(form.upper(), once)
