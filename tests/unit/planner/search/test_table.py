from __future__ import annotations

import numpy as np

from trainwright.planner.search.table import Table


def table(**options):
    return Table({"devices": np.asarray([4.0, 8.0])}, **options)


def test_each_value_of_a_new_column_stands_beside_each_row():
    made = table()
    made.cross("tp", (1, 2))
    assert made["devices"].tolist() == [4, 4, 8, 8]
    assert made["tp"].tolist() == [1, 2, 1, 2]
    assert len(made) == 4


def test_what_is_fixed_is_kept_alone_and_not_counted():
    made = table(fixed={"tp": 2.0, "data": 4.0})
    made.cross("tp", (1, 2))
    made.shape("data", made["devices"] / made["tp"])
    assert made["devices"].tolist() == [8]
    assert made.pruned == []


def test_a_rule_counts_what_it_strikes_out_and_says_why():
    made = table()
    made.keep(made["devices"] > 4, "few", lambda out: f"{int(out.sum())} is too few")
    (struck,) = made.pruned
    assert (struck.rule, struck.reason, struck.layouts) == ("few", "1 is too few", 1)


def test_wasteful_rows_stay_where_they_are_wanted():
    rows = []
    for wasteful in (False, True):
        made = table(wasteful=wasteful)
        made.prefer(made["devices"] > 4, "few", "too few")
        rows.append(len(made))
    assert rows == [1, 2]
