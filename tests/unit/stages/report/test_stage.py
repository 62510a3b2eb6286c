from __future__ import annotations

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.stages.report import run
from trainwright.stages.report.page import render


def test_writes_the_page_and_says_so(record, tmp_path):
    out = tmp_path / "report.partial"
    out.mkdir()
    with Events(None, run="r") as events:
        result = run(Context(recipe=record.recipe, inputs=record.artifacts, out=out, root=tmp_path, events=events))
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page == render(record)
    assert result.summary == {
        "file": "report.html",
        "size_bytes": len(page.encode()),
        "stages": sorted(record.artifacts),
    }


def test_without_any_input(recipe, tmp_path):
    with Events(None, run="r") as events:
        result = run(Context(recipe=recipe, out=tmp_path, root=tmp_path, events=events))
    assert result.summary["stages"] == []
