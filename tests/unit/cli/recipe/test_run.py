"""What ``run`` hands to the pipeline, and how it tells what came back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.cli.main import main
from trainwright.core.errors import TrainingError
from trainwright.pipeline import runner
from trainwright.testing.artifacts import make_artifact

SUMMARIES = {
    "train": {"steps": 1500000, "train_loss": 1.23456, "peak_bytes": 3 << 20, "seconds": 125, "resumed": False},
    "serve": {"prompt": "def add(a, b):", "answer": "\n    return a + b"},
    "report": {},
}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A pipeline that has finished: three artefacts, and what it was asked for."""
    asked = {}

    def artifact(name):
        made = make_artifact(tmp_path / "made", name, {"file": b"0123456789"}, SUMMARIES[name])
        return replace(made, manifest=replace(made.manifest, execution={"seconds": 75.0}))

    artifacts = {name: artifact(name) for name in SUMMARIES}

    def run(recipe, **arguments):
        asked.update(arguments, recipe=recipe)
        return artifacts

    monkeypatch.setattr(runner, "run", run)
    return artifacts, asked


def test_every_stage_is_asked_for_in_the_recipes_workspace(made, recipe):
    _, asked = made
    assert main(["run", recipe, "seed=7"]) == 0
    assert (asked["upto"], asked["root"]) == (None, Path("runs/tiny"))
    assert asked["recipe"].seed == 7
    assert len(asked["listeners"]) == 1


def test_a_row_for_each_stage_then_the_answer_then_where_to_look(made, recipe, capsys):
    artifacts, _ = made
    assert main(["run", recipe]) == 0
    shown = capsys.readouterr().out
    row = next(line for line in shown.splitlines() if line.startswith("train "))
    assert "1 min 15 s" in row and "10 B" in row and "1.5M" not in row and "loss 1.235" in row
    assert "def add(a, b):▸\n    return a + b" in shown
    assert f"report: {artifacts['report'].path / 'report.html'}" in shown
    assert f"train: {artifacts['train'].path}\n" in shown
    assert "serve: " not in shown


def test_json_has_the_whole_summary(made, recipe, capsys):
    artifacts, _ = made
    assert main(["run", recipe, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.run/1"
    assert document["artifacts"]["serve"] == {
        "path": str(artifacts["serve"].path),
        "fingerprint": "0" * 64,
        "seconds": 75.0,
        "summary": SUMMARIES["serve"],
    }


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (("run", "--workspace", "tiny.yaml"), "tiny.yaml"),
        (("doctor", "--workspace", "tiny.yaml"), "tiny.yaml"),
        (("doctor", "--fresh", "--workspace", "tiny.yaml"), "tiny.yaml"),
        (("train", "--workspace", "/dev/null"), "/dev/null"),
        (("train",), "runs/tiny"),
        (("report", "--out", "tiny.yaml"), "tiny.yaml"),
    ],
)
def test_a_file_is_no_place_for_results(command, place, recipe, capsys):
    Path("runs").mkdir()
    Path("runs/tiny").write_text("mine")
    name, *options = command
    assert main([name, recipe, *options]) == 3
    option = options[-2] if "--out" in options else "--workspace"
    line = f"error: {place}: cannot write: a file is where a folder should be; choose another place with {option}\n"
    assert capsys.readouterr().err == line


def test_a_failed_stage_is_one_line_and_its_exit_code(recipe, capsys, monkeypatch):
    def fails(*args, **kwargs):
        raise TrainingError("the loss is not a number", where="step 12")

    monkeypatch.setattr(runner, "run", fails)
    assert main(["run", recipe]) == TrainingError.exit_code
    assert capsys.readouterr().err.splitlines()[-1] == "error: step 12: the loss is not a number"
