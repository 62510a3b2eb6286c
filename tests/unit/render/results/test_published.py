from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.page import WrittenPage
from fixtures.published import record
from trainwright.core.errors import DataError
from trainwright.planner.evidence.published_run import question
from trainwright.planner.evidence.report import Errors, GroupErrors, Refused, Report, Verdicts
from trainwright.render.results.published import as_json, cut, draw, show, show_totals

SPEED = Errors(rows=1200, median=0.081, mean=0.12, p90=0.25, bias=-0.014, in_range=0.88)
REPORT = Report(
    rows=1500,
    predicted=1200,
    refused=tuple(Refused(id=name, source="s", line=1, reason="unknown device") for name in "ab"),
    unmeasured=tuple(question(record(line=place)) for place in range(2, 7)),
    speed=SPEED,
    derived=None,
    memory=None,
    verdicts=Verdicts(
        ran=90, ran_out=10, uncertain=5, right=0.98, false_alarms=0.02, recall=0.7, recall_with_uncertain=0.9
    ),
    groups=(
        GroupErrors(by="source", name="x" * 60, speed=SPEED, memory=None),
        GroupErrors(by="source", name="nothing measured", speed=None, memory=None),
    ),
    worst_speed=(),
    worst_memory=(),
)


def test_long_names_of_sources_are_cut_where_it_shows():
    assert cut("pytorch/torchtitan@b5bcd76") == "pytorch/torchtitan@b5bcd76"
    assert cut("x" * 60) == "x" * 45 + "..."


def test_people_read_shares_in_percent_and_only_what_was_measured():
    page = WrittenPage()
    show(REPORT, page)
    assert page.headings == ["1,200 of 1,500 rows predicted (80.0%); throughput off by 8.1% in the median"]
    assert page.tables[""] == [("throughput", "1,200", "8.1%", "12.0%", "25.0%", "-1.4%", "88%")]
    assert page.tables["by source"] == [("x" * 45 + "...", "1,200", "8.1%", "25.0%", "-1.4%", "", "", "", "")]
    assert page.tables["refused rows"] == [(2, "lines 1, 1", "unknown device")]
    line, more = (line for line in page.lines if line)
    assert more == "5 more rows without a measurement: lines 2, 3, 4 and 2 more"
    assert line == (
        "fits or not: 98.0% right of those it is sure of; 5 of 100 uncertain; 2.0% false alarms; of 10 that ran out "
        "of memory 70% refused, 90% refused or uncertain"
    )


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ({"uncertain": 90, "ran_out": 0}, "fits or not: 90 of 90 uncertain; 2.0% false alarms"),
        (
            {"ran": 0, "uncertain": 0},
            (
                "fits or not: 98.0% right of those it is sure of; 0 of 10 uncertain; of 10 that ran out of memory 70% "
                "refused, 90% refused or uncertain"
            ),
        ),
    ],
)
def test_shares_of_no_row_are_not_shown(verdicts, said):
    page = WrittenPage()
    show(replace(REPORT, verdicts=replace(REPORT.verdicts, **verdicts)), page)
    assert said in page.lines


def test_settings_that_were_not_used_are_named_with_their_rows():
    page, unused = WrittenPage(), {f"switch{place}": 20 - place for place in range(14)}
    show(replace(REPORT, unused=unused), page)
    (line,) = (line for line in page.lines if line.startswith("settings in notes that were not used"))
    assert "of how many rows: switch0 (20), switch1 (19)," in line and line.endswith("switch11 (9) and 2 more")
    assert as_json(replace(REPORT, unused=unused))["unused_settings"] == unused


def test_a_table_of_nothing_is_not_shown():
    page = WrittenPage()
    show(replace(REPORT, rows=0, predicted=0, refused=(), speed=None, verdicts=None, groups=()), page)
    assert page.tables == {}


def test_programs_read_the_same_numbers():
    document = as_json(REPORT)
    assert document["coverage"] == 0.8
    assert document["throughput"]["median"] == 0.081 and document["memory"] is None
    assert [group["name"] for group in document["groups"]] == ["x" * 60, "nothing measured"]
    assert document["verdicts"]["false_alarms"] == 0.02
    assert document["unmeasured"][0] == {"id": "own-1", "source": "own", "line": 2}


def test_of_no_training_there_is_neither_heading_nor_picture(tmp_path: Path):
    page = WrittenPage()
    show_totals([], [], None, page)
    assert page.headings == ["no training in these tables can be replayed"]
    with pytest.raises(DataError, match="nothing to draw"):
        draw([], tmp_path / "x.svg", unit="h", title="t")
