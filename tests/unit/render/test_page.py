from __future__ import annotations

from trainwright.render.page import without_empty


def test_columns_in_which_no_row_says_anything_are_left_out():
    columns, rows = without_empty(("", "name", "price", "note"), [("", "a", "", "x"), ("", "b", "", "")])
    assert (columns, rows) == (("name", "note"), [("a", "x"), ("b", "")])
    assert without_empty(("a", "b"), []) == ((), [])
