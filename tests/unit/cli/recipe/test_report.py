from __future__ import annotations

import json

import pytest

from trainwright.artifact import store
from trainwright.cli.main import main

RECIPE = """\
name: tiny
model: {layers: 2, width: 64, heads: 4, context_tokens: 256}
data: {sources: [{kind: files, paths: [corpus]}]}
train: {sequence_tokens: 256, batch_tokens: 2048}
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("text\n", encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return "recipe.yaml"


def test_reports_on_what_is_there(recipe, tmp_path, capsys):
    assert main(["report", recipe, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stages"] == []
    assert told["missing"][:2] == ["doctor", "plan"]
    page = (tmp_path / told["page"]).read_text(encoding="utf-8")
    assert "trainwright doctor" in page


def test_says_where_the_page_is_and_what_is_missing(recipe, capsys):
    assert main(["report", recipe]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip().endswith("report.html")
    assert "not there yet: doctor, plan" in printed.err


def test_a_run_that_can_only_be_read_is_reported_on_elsewhere(recipe, tmp_path, monkeypatch, capsys):
    workspace = tmp_path / "runs" / "tiny"
    workspace.mkdir(parents=True)
    before = {path.name for path in tmp_path.iterdir()}
    # Root may write anywhere, so that permissions alone would not refuse it.
    monkeypatch.setattr(store.os, "access", lambda path, mode: path != workspace.relative_to(tmp_path))
    assert main(["report", recipe]) == 3
    assert "runs/tiny: no page can be written here; name a folder" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == before
    assert not list(workspace.iterdir())
    assert main(["report", recipe, "--out", "pages"]) == 0
    assert capsys.readouterr().out == "pages/report.html\n"
    assert "trainwright doctor" in (tmp_path / "pages" / "report.html").read_text(encoding="utf-8")
