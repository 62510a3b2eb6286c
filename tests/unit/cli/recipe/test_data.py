from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright.cli.main import main


@pytest.fixture
def command(tmp_path, recipe):
    (tmp_path / "a.jsonl").write_text('{"text": "good text"}\n' * 2 + '{"text": "other text"}\n{\n{"text": ""}\n')
    keys = ['data.sources=[{"kind": "jsonl", "paths": ["a.jsonl"]}]', "data.tokenizer.vocabulary=300"]
    shares = ["data.split.train=1", "data.split.validation=0", "data.split.test=0"]
    return ["data", recipe, *keys, *shares, "--workspace", str(tmp_path / "runs")]


def test_the_funnel_is_shown_with_reasons_and_places(command, capsys):
    assert main(command) == 0
    shown = capsys.readouterr().out
    rows = {line.split("  ")[0]: line.split()[-4:] for line in shown.splitlines() if line}
    assert "- broken: broken JSON" in rows
    assert rows["- empty"][-1] == "a.jsonl:5"
    assert rows["- duplicate"][-1] == "a.jsonl:2"
    assert "of 300 asked for (the corpus is too small)" in shown
    assert "encoded by gigatoken" in shown
    assert str(command[-1]) in shown


def test_json_is_the_report_and_how_it_was_made(command, capsys):
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.data/1"
    assert document["total"]["kept"] == {"documents": 2, "bytes": 19}
    assert document["splits"]["train"]["documents"] == 2
    assert document["execution"]["encoding"]["engine"] == "gigatoken"
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document, "a second time is a cache hit"


def test_bad_input_is_one_line_and_exit_code_4(command, capsys):
    assert main([*command, "data.strict=true"]) == 4
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: override data.strict: broken record: broken JSON")
    assert "a.jsonl:4" in error


def test_a_damaged_report_is_one_line_and_exit_code_4(command, capsys):
    assert main([*command, "--json"]) == 0
    path = Path(json.loads(capsys.readouterr().out)["path"]) / "report.json"
    path.write_text("{}")
    assert main([*command, "--quiet"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: damaged file: its size changed")
    assert f"delete {path.parent} and run the same command" in line
