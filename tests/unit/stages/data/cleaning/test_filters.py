from __future__ import annotations

from typing import ClassVar

import pytest

from trainwright.spec.sections.data import FILTERS, CleanSection
from trainwright.stages.data.cleaning.filters import load_filters
from trainwright.testing.contract_filter import FilterContract

ORDINARY = "def add(a, b):\n    '''Add two numbers.'''\n    return a + b\n"


def reason(text, **filter_):
    (judge,) = load_filters(CleanSection.model_validate({"filters": [filter_]}).filters)
    return judge(text)


@pytest.mark.parametrize("name", FILTERS)
def test_ordinary_text_is_kept(name):
    assert reason(ORDINARY, name=name) is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("long-lines", "short\n" * 99 + "x" * 1001, "a line over 1,000 characters"),
        ("long-lines", "x" * 500 + "\nshort", "lines over 100 characters on average"),
        ("few-letters", "--- +++ ***\n" * 9 + "abc", "under 25% letters and digits"),
        ("repeated-lines", "buy now\n" * 5 + "one\ntwo\n", "over 30% repeated lines"),
    ],
)
def test_each_filter_gives_its_reason(name, text, said):
    assert reason(text, name=name) == said


@pytest.mark.parametrize(
    ("text", "keys", "said"),
    [
        ("x" * 9, {"name": "long-lines", "max_characters": 8}, "a line over 8 characters"),
        ("x" * 9, {"name": "long-lines", "max_mean_characters": 8.5}, "lines over 8.5 characters on average"),
        ("a---", {"name": "few-letters", "min_ratio": 0.275}, "under 27.5% letters and digits"),
        ("a\na\nb\nc", {"name": "repeated-lines", "max_ratio": 0.24}, "over 24% repeated lines"),
    ],
)
def test_a_recipe_sets_the_threshold(text, keys, said):
    assert reason(text, name=keys["name"]) is None
    assert reason(text, **keys) == said


def test_thresholds_are_inclusive():
    assert reason("x" * 1000 + "\n" * 10, name="long-lines") is None
    assert reason("a---", name="few-letters") is None
    assert reason("a\na\na\na\nb\nc\nd\ne\nf\ng\n", name="repeated-lines") is None


class TestLongLines(FilterContract):
    filter = "long-lines"
    kept = (ORDINARY,)
    dropped = ("x" * 1001, "y" * 500)


class TestFewLetters(FilterContract):
    filter = "few-letters"
    kept = (ORDINARY,)
    dropped = ("--- +++ ***", "0.1;" * 3 + "|" * 90)


class TestRepeatedLines(FilterContract):
    filter = "repeated-lines"
    keys: ClassVar = {"max_ratio": 0.4}
    kept = (ORDINARY,)
    dropped = ("buy now\n" * 5,)
