"""``trainwright recipes``: a list, a text, a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright.cli.main import main

RECIPES = Path(__file__).parents[4] / "recipes"


def test_the_list_has_a_line_for_each(capsys) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == sorted(path.stem for path in RECIPES.glob("*.yaml"))
    assert main(["recipes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["schema"] == "trainwright.recipes/1"
    assert {each["name"]: each["takes"] for each in listed["recipes"]}["gpt2-124m"] is None


def test_one_is_printed_to_the_byte_or_written(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (RECIPES / "quickstart.yaml").read_text()
    assert main(["recipes", "quickstart"]) == 0
    assert capsys.readouterr().out == text
    assert main(["recipes", "quickstart", "-o", "mine.yaml"]) == 0
    assert capsys.readouterr().out == "wrote mine.yaml\n  trainwright run mine.yaml\n"
    assert (tmp_path / "mine.yaml").read_text() == text
    assert main(["recipes", "dpo-tiny", "-o", "mine.yaml"]) == 2
    assert "this file is there already (seen mine.yaml); write it elsewhere with --out-file" in capsys.readouterr().err
    assert main(["recipes", "dpo-tiny", "-o", "mine.yaml", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == "mine.yaml"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [(["quikstart"], "did you mean 'quickstart'?"), (["-o", "x.yaml"], "NAME: no recipe is named")],
)
def test_mistakes_are_one_line(capsys, arguments, line) -> None:
    assert main(["recipes", *arguments]) == 2
    seen = capsys.readouterr().err
    assert line in seen and seen.count("\n") == 1
