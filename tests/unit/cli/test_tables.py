from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.tables import aligned, blocks, narrowest, paragraphs, wrapped

COLUMNS = ("run on", "time", "note")
ROWS = [["64x8xh100-sxm", "3 days", "cheapest of all"], ["8xa100-80gb", "90 days", ""]]


def test_columns_are_aligned_and_numbers_stand_right():
    assert list(aligned(COLUMNS, ROWS, [False, True, False])) == [
        "run on            time  note",
        "64x8xh100-sxm   3 days  cheapest of all",
        "8xa100-80gb    90 days",
    ]


def test_the_narrowest_table_breaks_no_word():
    assert narrowest(COLUMNS, ROWS) == len("64x8xh100-sxm") + len("time") + len("cheapest") + 4


def test_a_block_for_each_row_without_empty_cells():
    assert list(blocks(COLUMNS, ROWS, width=16)) == [
        "run on:",
        "  64x8xh100-sxm",
        "time: 3 days",
        "note: cheapest",
        "  of all",
        "",
        "run on:",
        "  8xa100-80gb",
        "time: 90 days",
    ]


def test_a_column_without_a_name_has_no_colon():
    assert list(blocks(("", "ratio"), [["forward", "1.1"]], width=40)) == ["forward", "ratio: 1.1"]


@given(st.lists(st.text("abc ", min_size=1), min_size=1), st.integers(1, 60))
def test_no_word_is_lost_by_wrapping(texts, width):
    text = " ".join(texts)
    assert " ".join(wrapped(text, width=width)).split() == text.split()


def test_paragraphs_are_joined_and_lines_with_columns_are_not():
    text = "one two three\nfour\n\nbash:  a b c d\nzsh:   e"
    assert paragraphs(text, width=10) == "one two\nthree four\n\nbash:  a b\n    c d\nzsh:   e"
    assert paragraphs(text, width=None) == paragraphs(text, width=80) == text
