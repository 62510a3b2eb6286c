"""Tables of checkpoints, as a page takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.page import WrittenPage
from trainwright.artifact.checkpoint.difference import TensorDifference
from trainwright.artifact.checkpoint.listing import Listed
from trainwright.render.results.checkpoints import show_differences, show_list


def test_what_is_not_known_is_empty() -> None:
    page = WrittenPage()
    show_list([Listed(path=Path("step-1"), damage="incomplete: the next start deletes it", state="incomplete")], page)
    assert page.tables["checkpoint"] == [(Path("step-1"), None, None, None, None, None, "incomplete")]
    assert page.lines == ["step-1: incomplete: the next start deletes it"] and not page.notes


def test_what_is_whole_by_size_says_what_reads_its_bytes() -> None:
    page = WrittenPage()
    show_list([Listed(path=Path("step-1"), step=1, size_bytes=8)], page)
    assert page.tables["checkpoint"][0][-1] == "whole by size" and not page.lines
    (note,) = page.notes
    assert "checkpoint verify" in note


def test_equal_checkpoints_are_a_sentence() -> None:
    page = WrittenPage()
    show_differences([], page)
    assert page.headings == ["Every tensor is the same."]


def test_each_difference_is_a_row() -> None:
    page = WrittenPage()
    rows = [
        TensorDifference(name="a", kind="shape", seen="(2,)", expected="(3,)"),
        TensorDifference(name="b", kind="values", elements=4, max_abs=0.25, relative=0.001),
    ]
    show_differences(rows, page)
    assert page.tables["tensor"] == [
        ("a", "shape: (2,), (3,)", None, None, None),
        ("b", "values", 4, "0.25", "0.001"),
    ]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0.25], "1 tensor differs: 1 in values; the most in t0, by 0.25 of its norm."),
        ([0.25, 0.5, float("nan")], "3 tensors differ: 3 in values; the most in t2, by nan of its norm."),
        ([0.5, 0.25, None], "3 tensors differ: 1 on one side alone, 2 in values; the most in t0, by 0.5 of its norm."),
        ([None], "1 tensor differs: 1 on one side alone."),
    ],
)
def test_the_first_line_says_what_differs_and_where_most(values, line) -> None:
    page = WrittenPage()
    kinds = ["missing" if value is None else "values" for value in values]
    found = [
        TensorDifference(name=f"t{number}", kind=kind, max_abs=1.0 + number, relative=value)
        for number, (kind, value) in enumerate(zip(kinds, values, strict=True))
    ]
    show_differences(found, page)
    assert page.headings == [line]
