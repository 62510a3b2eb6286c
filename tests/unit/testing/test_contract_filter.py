"""The contract finds what a filter does wrong: each of its tests can fail."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

import pytest

from trainwright.core.errors import DataError
from trainwright.testing.contract_filter import STRANGE, FilterContract

counter = itertools.count()
WRONG = {
    "quotes": lambda text: f"bad text {text!r}" if "bad" in text else None,
    "lines": lambda text: "one\ntwo" if "bad" in text else None,
    "truth": lambda text: "bad" in text,
    "breaks": lambda text: "empty" if text[0] == "b" else None,
    "moody": lambda text: "bad" if "bad" in text and next(counter) % 2 else None,
}


@pytest.fixture
def contract(monkeypatch):
    monkeypatch.setitem(sys.modules, "my_wrong_filters", SimpleNamespace(**WRONG))

    def make(name):
        keys = {"filter": f"my_wrong_filters:{name}", "kept": ("good",), "dropped": ("bad",)}
        return type("TestWrong", (FilterContract,), keys)()

    return make


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("quotes", "test_reasons_are_kinds_and_not_messages"),
        ("lines", "test_what_is_dropped_has_a_reason_of_one_line"),
        ("truth", "test_what_is_kept_has_no_reason"),
        ("moody", "test_the_answer_depends_on_the_text_alone"),
    ],
)
def test_what_a_filter_does_wrong_is_found(contract, name, test):
    with pytest.raises(AssertionError):
        getattr(contract(name), test)()


def test_a_filter_that_breaks_on_strange_text_is_found(contract):
    with pytest.raises((IndexError, DataError)):
        contract("breaks").test_every_text_is_taken(STRANGE[0])


def test_a_contract_without_examples_proves_nothing():
    with pytest.raises(AssertionError, match="give texts that the filter keeps"):
        FilterContract().test_examples_of_both_sides_are_there()
