from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.page import WrittenPage
from trainwright.core.errors import DataError
from trainwright.planner.evidence.report import Errors, GroupErrors, Refused, Report, Verdicts
from trainwright.render.results.published import as_json, cut, draw, show, show_totals

SPEED = Errors(rows=1200, median=0.081, mean=0.12, p90=0.25, bias=-0.014, in_range=0.88)
REPORT = Report(
    rows=1500,
    predicted=1200,
    refused=tuple(Refused(id=name, source="s", line=1, reason="unknown device") for name in "ab"),
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
    assert page.tables["refused rows"] == [(2, "unknown device")]
    (line,) = (line for line in page.lines if line)
    assert line == (
        "fits or not: 98.0% right of those it is sure of; 5 of 100 uncertain; 2.0% false alarms; of 10 that ran out "
        "of memory 70% refused, 90% refused or uncertain"
    )


def test_programs_read_the_same_numbers():
    document = as_json(REPORT)
    assert document["coverage"] == 0.8
    assert document["throughput"]["median"] == 0.081 and document["memory"] is None
    assert [group["name"] for group in document["groups"]] == ["x" * 60, "nothing measured"]
    assert document["verdicts"]["false_alarms"] == 0.02


def test_of_no_training_there_is_neither_heading_nor_picture(tmp_path: Path):
    page = WrittenPage()
    show_totals([], [], None, page)
    assert page.headings == []
    with pytest.raises(DataError, match="nothing to draw"):
        draw([], tmp_path / "x.svg", unit="h", title="t")
