from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.tables import aligned, blocks, hanging, paragraphs, shared, wrapped

COLUMNS = ("run on", "time", "note")
ROWS = [["64x8xh100-sxm", "3 days", "cheapest of all"], ["8xa100-80gb", "90 days", ""]]


def test_columns_are_aligned_and_numbers_stand_right():
    assert list(aligned(COLUMNS, ROWS, [False, True, False])) == [
        "run on            time  note",
        "64x8xh100-sxm   3 days  cheapest of all",
        "8xa100-80gb    90 days",
    ]


def test_columns_share_the_room_and_break_no_word():
    assert shared(COLUMNS, ROWS, 100) == [len("64x8xh100-sxm"), len("90 days"), len("cheapest of all")]
    assert shared(COLUMNS, ROWS, 0) == [len("64x8xh100-sxm"), len("time"), len("cheapest")]
    assert shared(COLUMNS, ROWS, 30) == [13, 4 + 3, 8 + 2]
    assert sum(shared(COLUMNS, ROWS, 28)) == 28


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
    assert list(blocks(("", "ratio"), [["forward", "1.1"]], width=10)) == ["forward", "ratio: 1.1"]


def test_cells_share_a_line_of_a_block_and_none_is_broken_between_lines():
    row = ["*", "2xb200-sxm", "7 days", "136.5 GiB of 176.4 GiB, and the rest"]
    assert list(blocks(("", "run on", "time", "memory"), [row], width=33)) == [
        "*  run on: 2xb200-sxm",
        "time: 7 days",
        "memory: 136.5 GiB of 176.4 GiB,",
        "  and the rest",
    ]
    assert next(blocks(("", "run on", "time"), [row[:3]], width=40)) == "*  run on: 2xb200-sxm  time: 7 days"


def test_the_last_column_hangs_where_the_others_leave_it_room():
    note = "cheapest of all that were looked at in these regions"
    rows = [["64x8xh100-sxm", "3 days", note], ["l4", "90 days", ""]]
    assert hanging(COLUMNS, rows, [False, True, False], 50) == [
        "run on            time  note",
        "64x8xh100-sxm   3 days  cheapest of all that were",
        "                        looked at in these regions",
        "l4             90 days",
    ]
    # Too narrow a column, one with a longer word, and one of numbers are not wrapped.
    assert hanging(COLUMNS, rows, [False, True, False], 47) == []
    assert hanging(COLUMNS, [["a", "1 s", "x" * 45]], [False, True, False], 50) == []
    assert hanging(COLUMNS, rows, [False, True, True], 50) == []


@given(st.lists(st.text("abc ", min_size=1), min_size=1), st.integers(1, 60))
def test_no_word_is_lost_by_wrapping(texts, width):
    text = " ".join(texts)
    assert " ".join(wrapped(text, width=width)).split() == text.split()


def test_paragraphs_are_joined_and_lines_with_columns_are_not():
    text = "one two three\nfour\n\nbash:  a b c d\nzsh:   e"
    assert paragraphs(text, width=10) == "one two\nthree four\n\nbash:  a b\n    c d\nzsh:   e"
    assert paragraphs(text, width=None) == paragraphs(text, width=80) == text
