"""Hits, misses, interruptions and errors, on stages of a few lines."""

from __future__ import annotations

import json

import pytest

from trainwright.artifact.stage import StageResult
from trainwright.core.errors import DataError, MachineError
from trainwright.pipeline import graph, runner
from trainwright.pipeline.graph import Stage
from trainwright.spec.recipe import Recipe

RAN: list[str] = []
BREAK: set[str] = set()


def double(recipe, inputs, out, events):
    """Writes twice what it finds; leaves a part behind when it breaks."""
    RAN.append("double")
    (out / "part").write_text("kept")
    if "double" in BREAK:
        raise DataError("no more")
    number = recipe.train.batch_tokens
    (out / "number.json").write_text(json.dumps(2 * number))
    return StageResult(summary={"number": 2 * number})


def add(recipe, inputs, out, events):
    RAN.append("add")
    number = json.loads(inputs["double"].file("number.json").read_text())
    if "disk" in BREAK:
        raise OSError(28, "No space left on device", str(out / "x"))
    (out / "number.json").write_text(json.dumps(number + recipe.seed))
    return StageResult(summary={"number": number + recipe.seed})


@pytest.fixture(autouse=True)
def _two_stages(monkeypatch) -> None:
    RAN.clear()
    BREAK.clear()
    here = "tests_pipeline_stages"
    monkeypatch.setitem(__import__("sys").modules, here, __import__("types").SimpleNamespace(double=double, add=add))
    stages = (
        Stage(name="double", version=1, run=f"{here}:double", inputs={},
              identity=lambda recipe, inputs: recipe.identity("train")),
        Stage(name="add", version=1, run=f"{here}:add", inputs={"double": ("*.json",)},
              identity=lambda recipe, inputs: {"seed": recipe.seed}),
    )  # fmt: skip
    table = {stage.name: stage for stage in stages}
    monkeypatch.setattr(graph, "STAGES", table)
    monkeypatch.setattr(runner, "STAGES", table)


def recipe(**keys) -> Recipe:
    base = {
        "name": "x",
        "model": {"layers": 1, "width": 8, "heads": 1},
        "data": {"sources": [{"kind": "python-stdlib"}]},
    }
    return Recipe.model_validate(base | keys)


def test_nothing_is_done_twice(tmp_path) -> None:
    first = runner.run(recipe(seed=1), root=tmp_path)
    again = runner.run(recipe(seed=1), root=tmp_path)
    assert RAN == ["double", "add"]
    assert first == again
    assert first["add"].summary["number"] == 2 * 65536 + 1


def test_a_change_reruns_what_follows_only(tmp_path) -> None:
    runner.run(recipe(seed=1), root=tmp_path)
    runner.run(recipe(seed=2), root=tmp_path)
    assert RAN == ["double", "add", "add"]
    runner.run(recipe(seed=2, train={"batch_tokens": 2048}), root=tmp_path)
    assert RAN[3:] == ["double", "add"]
    runner.run(recipe(seed=1), root=tmp_path)
    assert len(RAN) == 5, "old results are still there"


def test_exec_keys_are_no_change(tmp_path) -> None:
    runner.run(recipe(), root=tmp_path)
    runner.run(recipe(train={"exec": {"micro_batch": 3}}), root=tmp_path)
    assert len(RAN) == 2


def test_upto_runs_what_is_needed(tmp_path) -> None:
    made = runner.run(recipe(), root=tmp_path, upto="double")
    assert list(made) == ["double"] and RAN == ["double"]


def test_an_error_keeps_parts_and_the_next_run_takes_them_up(tmp_path) -> None:
    BREAK.add("double")
    with pytest.raises(DataError, match="no more"):
        runner.run(recipe(), root=tmp_path)
    (partial,) = tmp_path.glob("double-*.partial")
    assert (partial / "part").read_text() == "kept"
    BREAK.clear()
    made = runner.run(recipe(), root=tmp_path)
    assert made["add"].path.is_dir() and not list(tmp_path.glob("*.partial"))


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path) -> None:
    BREAK.add("disk")
    with pytest.raises(MachineError, match="the disk is full"):
        runner.run(recipe(), root=tmp_path)
    BREAK.clear()
    runner.run(recipe(), root=tmp_path)
    assert RAN == ["double", "add", "add"]


def test_events_say_what_ran_and_what_was_there(tmp_path) -> None:
    heard = []
    for _ in range(2):
        runner.run(recipe(), root=tmp_path, listeners=(heard.append,))
    said = [(event.name, event.text) for event in heard if event.kind == "stage"]
    assert said == [
        ("double", "started"), ("double", "done"), ("add", "started"), ("add", "done"),
        ("double", "cached"), ("add", "cached"),
    ]  # fmt: skip


def test_find_makes_nothing(tmp_path) -> None:
    assert runner.find(recipe(), root=tmp_path, upto="add") == {}
    made = runner.run(recipe(), root=tmp_path, upto="double")
    assert runner.find(recipe(), root=tmp_path, upto="add") == made
    assert RAN == ["double"]


def test_the_manifest_records_how_it_was_made(tmp_path) -> None:
    made = runner.run(recipe(), root=tmp_path)
    execution = made["add"].manifest.execution
    assert execution["seconds"] >= 0 and execution["python"] and execution["packages"]["numpy"] != "absent"
    assert made["add"].manifest.inputs == {"double": made["double"].digest(("*.json",))}
