from __future__ import annotations

import json

import pytest

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
