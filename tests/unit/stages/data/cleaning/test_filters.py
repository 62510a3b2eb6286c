from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.sections.data import FILTERS
from trainwright.stages.data.cleaning.filters import few_letters, load_filters, long_lines, repeated_lines
from trainwright.testing.contract_filter import FilterContract

ORDINARY = "def add(a, b):\n    '''Add two numbers.'''\n    return a + b\n"


@pytest.mark.parametrize("name", FILTERS)
def test_ordinary_text_is_kept(name):
    (judge,) = load_filters((name,))
    assert judge(ORDINARY) is None


@pytest.mark.parametrize(
    ("judge", "text", "reason"),
    [
        (long_lines, "short\n" * 99 + "x" * 1001, "a line over 1,000 characters"),
        (long_lines, "x" * 500 + "\nshort", "lines over 100 characters on average"),
        (few_letters, "--- +++ ***\n" * 9 + "abc", "under 25% letters and digits"),
        (repeated_lines, "buy now\n" * 5 + "one\ntwo\n", "over 30% repeated lines"),
    ],
)
def test_each_filter_gives_its_reason(judge, text, reason):
    assert judge(text) == reason


def test_thresholds_are_inclusive():
    assert long_lines("x" * 1000 + "\n" * 10) is None
    assert few_letters("a---") is None
    assert repeated_lines("a\na\na\na\nb\nc\nd\ne\nf\ng\n") is None


def test_a_recipe_may_name_its_own():
    (judge,) = load_filters(("trainwright.stages.data.cleaning.filters:few_letters",))
    assert judge is few_letters


def test_a_misspelt_filter_is_a_recipe_error():
    with pytest.raises(RecipeError, match="unknown filter .*did you mean 'long-lines'"):
        load_filters(("long-line",))


class TestLongLines(FilterContract):
    filter = "long-lines"
    kept = (ORDINARY,)
    dropped = ("x" * 1001, "y" * 500)


class TestFewLetters(FilterContract):
    filter = "few-letters"
    kept = (ORDINARY,)
    dropped = ("--- +++ ***", "0.1;" * 3 + "|" * 90)


class TestRepeatedLines(FilterContract):
    filter = "trainwright.stages.data.cleaning.filters:repeated_lines"
    kept = (ORDINARY,)
    dropped = ("buy now\n" * 5,)
