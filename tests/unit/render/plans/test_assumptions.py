"""Rows of what an answer rests on: values with their units, sources as long as is asked for."""

from __future__ import annotations

import pytest

from trainwright.render.plans.assumptions import SHORT, assumption_row, shortened
from trainwright.spec.plan import Assumption


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.8675, "$ per device and hour", "$1.87 per device and hour"),
        (0.25, "s", "250 ms"),
        (4430.0, "hours", "4,430 hours"),
        ("unknown", "", "unknown"),
    ],
)
def test_values_are_as_people_write_them(value, unit, text):
    assert assumption_row(Assumption("it", value, unit, "default", "a guess", key="it"))[1] == text


def test_a_source_is_cut_between_its_clauses_and_never_within_a_word():
    path = "; owner/list:catalogs/v9/of/some/cloud/vms.csv@a5be538"
    assert shortened("Vast.ai Oregon, US, NA, of an unknown day" + path) == "Vast.ai Oregon, US, NA, of an unknown day"
    assert shortened("a; b; c") == "a; b; c"
    words = "word " * 40
    cut = shortened(words)
    assert len(cut) <= SHORT and set(cut.removesuffix("...").split()) == {"word"}
    entry = Assumption("it", 1.0, "", "default", words, key="it")
    assert (assumption_row(entry)[3], assumption_row(entry, whole=False)[3]) == (words, cut)
