from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fixtures.page import WrittenPage
from trainwright.planner.evidence.audit import Audit, AuditRow
from trainwright.render.results.audit import difference, groups, quantity_text, show, verdict


def row(group, quantity, predicted, measured, *, unit="s", ratio="computed", within=None):
    ratio = measured / predicted if ratio == "computed" else ratio
    return AuditRow(
        group=group, quantity=quantity, unit=unit, predicted=predicted, measured=measured, ratio=ratio, within=within
    )


RUN = (
    row("run", "training time", 200.0, 216.0, within=True),
    row("run", "peak memory", 2**30, 1.09 * 2**30, unit="bytes"),
    row("run", "tokens per second", 16_678.3, 15_114.0, unit="tokens/s"),
    row("run", "MFU", 0.098, 0.089, unit=""),
)
STEP = (
    row("step", "forward", 0.05, 0.05),
    row("step", "update", 0.014, 0.021),
    row("step", "data_wait", 0.0, 0.0002, ratio=None),
    row("step", "other", 0.0, 0.0003, ratio=None),
)
WHOLE = (
    row("whole run", "forward", 80.0, 80.0),
    row("whole run", "update", 22.4, 33.6),
    row("whole run", "data_wait", 0.0, 0.3, ratio=None),
    row("whole run", "evaluate", 15.0, 12.0),
    row("whole run", "checkpoint", 0.2, 0.3, ratio=None),
)


def audit(rows, *, seconds_ratio=1.08, memory_ratio=1.09):
    return Audit(rows=tuple(rows), seconds_ratio=seconds_ratio, memory_ratio=memory_ratio)


def test_each_quantity_is_one_line_and_small_parts_share_the_last():
    shown = {group.title: [line.quantity for line in group.lines] for group in groups(audit(RUN + STEP + WHOLE))}
    assert shown == {
        "the run": ["training time", "peak memory", "tokens per second", "model FLOPs utilisation"],
        "one step": ["forward", "update", "waiting for data, other"],
        "beside the steps": ["evaluate", "checkpoint"],
    }


def test_small_parts_are_summed():
    (step,) = groups(audit(STEP))
    rest = step.lines[-1]
    assert (rest.predicted, rest.measured, rest.difference, rest.close) == ("0 s", "500 µs", "", None)


def test_a_large_part_that_nobody_predicted_stands_alone():
    (group,) = groups(audit([*STEP, row("step", "communicate", 0.0, 0.03, ratio=None)]))
    line = next(line for line in group.lines if line.quantity == "communicate")
    assert (line.difference, line.close) == ("unplanned", False)


def test_lines_say_how_far_off_and_whether_that_is_close():
    run, step = groups(audit(RUN + STEP))
    assert [(line.difference, line.close) for line in run.lines] == [
        ("+8 %", True),
        ("+9 %", True),
        ("-9 %", True),
        ("-9 %", True),
    ]
    assert [(line.difference, line.close) for line in step.lines[:2]] == [("±0 %", True), ("+50 %", False)]


@pytest.mark.parametrize(
    ("rows", "seconds", "memory", "text"),
    [
        (
            RUN,
            1.08,
            1.09,
            (
                "Training took 8 % longer than predicted (within the predicted range); peak memory was 9 % above its "
                "prediction."
            ),
        ),
        (STEP, 0.9, 1.0, "Training took 10 % less time than predicted; peak memory was as predicted."),
    ],
)
def test_the_verdict_is_a_sentence(rows, seconds, memory, text):
    assert verdict(audit(rows, seconds_ratio=seconds, memory_ratio=memory)) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.081, "+8 %"), (0.906, "-9 %"), (1.001, "±0 %"), (3.21, "3.21×"), (math.inf, "unknown")]
)
def test_differences_are_signed(ratio, text):
    assert difference(ratio) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.5, "s", "500 ms"), (1 << 30, "bytes", "1 GiB"), (12345.6, "tokens/s", "12,346"), (0.25, "", "25 %")],
)
def test_values_are_written_in_their_unit(value, unit, text):
    assert quantity_text(value, unit) == text


def test_the_verdict_comes_first_and_a_group_is_named_once():
    rows = (
        row("step", "forward", 1.0, 1.1),
        row("step", "backward", 2.0, 2.0),
        row("step", "data_wait", 0.0, 0.001, ratio=None),
    )
    page = WrittenPage()
    show(audit(rows, seconds_ratio=1.1, memory_ratio=0.97), page)
    assert page.headings == ["Training took 10 % longer than predicted; peak memory was 3 % below its prediction."]
    assert page.tables[""] == [
        ("one step", "forward", "1 s", "1.1 s", "+10 %"),
        ("", "backward", "2 s", "2 s", "±0 %"),
        ("", "waiting for data", "0 s", "1 ms", ""),
    ]


def test_ranks_have_a_column_where_there_are_several():
    alone, several = WrittenPage(), WrittenPage()
    show(audit(RUN + STEP), alone)
    show(audit([*RUN, replace(STEP[0], ranks=(0.04, 0.05, 0.07))]), several)
    assert {len(row) for row in alone.tables[""]} == {5}
    assert [row[5] for row in several.tables[""]] == ["", "", "", "", "40 ms, 50 ms, 70 ms"]
