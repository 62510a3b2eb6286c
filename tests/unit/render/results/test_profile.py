"""The table adds up, and lanes stand beside each other by the ranks' clocks."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from fixtures.page import WrittenPage
from fixtures.profiles import PROFILE
from trainwright.render.results.profile import draw, show


def test_phases_and_operators_are_told_with_their_share() -> None:
    page = WrittenPage()
    show(PROFILE, page)
    assert page.headings == ["tiny on Ideal CPU: a step takes 1 s under the profiler (mean of 2, updates 20 to 21)"]
    assert page.tables["phase"] == [
        ("data wait", "100.00", "10.0%", "100.00", "100.00"),
        ("forward", "400.00", "40.0%", "300.00", "500.00"),
        ("communicate", "500.00", "50.0%", "400.00", "600.00"),
    ]
    assert page.tables["operator of rank 0"] == [("aten::mm", 8, "250.00")]


def test_one_process_has_no_columns_about_ranks() -> None:
    page = WrittenPage()
    show(replace(PROFILE, ranks=PROFILE.ranks[:1]), page)
    assert {len(row) for row in page.tables["phase"]} == {3} and "operator" in page.tables


def test_ranks_stand_where_they_were(tmp_path) -> None:
    draw(PROFILE, tmp_path / "step.svg")
    picture = ET.fromstring((tmp_path / "step.svg").read_text())
    bars = [bar for bar in picture.iter("{http://www.w3.org/2000/svg}rect") if len(bar)]
    begins = sorted({float(bar.get("y")): float(bar.get("x")) for bar in reversed(bars)}.items())
    widths = sum(float(bar.get("width")) for bar in bars[:3])  # of one second
    assert begins[1][1] - begins[0][1] == pytest.approx(0.2 * widths, abs=0.1), "the second began 0.2 s later"
