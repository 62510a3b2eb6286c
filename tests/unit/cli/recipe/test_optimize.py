from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fixtures.ladders import LADDER
from trainwright.cli.main import main
from trainwright.core.records import to_json
from trainwright.pipeline import runner
from trainwright.planner.evidence.ladder import FILE, TUNED_FILE
from trainwright.testing.artifacts import make_artifact


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A finished ladder in place of a climb; returns what the pipeline was asked for."""
    files = {FILE: json.dumps(to_json(LADDER)).encode(), TUNED_FILE: b"name: tuned\n"}
    artifact, asked = make_artifact(tmp_path / "made", "optimize", files), []

    def run(recipe, **arguments):
        asked.append((recipe, arguments["upto"]))
        return {arguments["upto"]: artifact}

    monkeypatch.setattr(runner, "run", run)
    return artifact, asked


def test_the_ladder_is_printed_and_json_is_its_file(made, recipe, capsys) -> None:
    artifact, asked = made
    assert main(["optimize", recipe]) == 0
    printed = capsys.readouterr()
    assert "2.50x as fast as the naive configuration" in printed.out and "fused-update" in printed.out
    assert f"trainwright train {artifact.path / TUNED_FILE}" in printed.err.replace("\n", "")
    assert main(["optimize", recipe, "optimize.steps=30", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.optimize/1"
    assert document["ladder"] == json.loads(json.dumps(to_json(LADDER)))
    assert document["tuned"] == str(artifact.path / TUNED_FILE)
    assert [upto for _, upto in asked] == ["optimize-train"] * 2
    assert asked[1][0].optimize.steps == 30


def test_a_recipe_that_stays_as_it_was_given_is_not_called_tuned(tmp_path, monkeypatch, recipe, capsys) -> None:
    stays = replace(LADDER, tuned={})
    files = {FILE: json.dumps(to_json(stays)).encode(), TUNED_FILE: b"name: tuned\n"}
    artifact = make_artifact(tmp_path / "made", "optimize", files)
    monkeypatch.setattr(runner, "run", lambda recipe, **arguments: {arguments["upto"]: artifact})
    assert main(["optimize", recipe]) == 0
    said = capsys.readouterr().err.replace("\n", "")
    assert "the recipe stays as it was given" in said and TUNED_FILE not in said


def test_the_picture_goes_where_it_is_wanted(made, recipe, tmp_path, capsys) -> None:
    assert main(["optimize", recipe, "--draw", str(tmp_path / "ladder.svg")]) == 0
    assert (tmp_path / "ladder.svg").stat().st_size > 0


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_measured(made, recipe, capsys) -> None:
    _, asked = made
    assert main(["optimize", recipe, "--draw", "ladder.pdf"]) == 2
    assert not asked
