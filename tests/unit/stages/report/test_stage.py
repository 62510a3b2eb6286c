from __future__ import annotations

from trainwright.artifact.events import Events
from trainwright.stages.report import run
from trainwright.stages.report.page import render


def test_writes_the_page_and_says_so(record, tmp_path):
    out = tmp_path / "report.partial"
    out.mkdir()
    with Events(None, run="r") as events:
        result = run(record.recipe, record.artifacts, out, events)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page == render(record)
    assert result.summary == {
        "file": "report.html", "size_bytes": len(page.encode()), "stages": sorted(record.artifacts)
    }  # fmt: skip


def test_without_any_input(recipe, tmp_path):
    with Events(None, run="r") as events:
        result = run(recipe, {}, tmp_path, events)
    assert result.summary["stages"] == []
