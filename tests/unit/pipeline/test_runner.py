"""Hits, misses, interruptions and errors, on stages of a few lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from trainwright.artifact.stage import StageResult
from trainwright.core.errors import DataError, MachineError
from trainwright.core.units import format_seconds
from trainwright.pipeline import graph, runner
from trainwright.pipeline.graph import Need, Stage
from trainwright.spec.recipe import Recipe

RAN: list[str] = []
BREAK: set[str] = set()


def double(context):
    """Writes twice what it finds; leaves a part behind when it breaks."""
    RAN.append("double")
    if "refuse" in BREAK:
        raise DataError("not yet")
    (context.out / "part").write_text("kept")
    if "double" in BREAK:
        raise DataError("no more")
    number = context.recipe.train.batch_tokens
    (context.out / "number.json").write_text(json.dumps(2 * number))
    return StageResult(summary={"number": 2 * number})


def add(context):
    RAN.append("add")
    number = json.loads(context.input("doubled").file("number.json").read_text())
    if "disk" in BREAK:
        raise OSError(28, "No space left on device", str(context.out / "x"))
    total = number + context.recipe.seed
    (context.out / "number.json").write_text(json.dumps(total))
    return StageResult(summary={"number": total})


def search(context):
    """Adds under three seeds, each in a run of its own, and keeps the largest sum."""
    RAN.append("search")
    trials = [context.child(context.recipe.model_copy(update={"seed": seed}), upto="add") for seed in (1, 3, 2)]
    if "search" in BREAK:
        raise DataError("no more")
    return StageResult(summary={"best": max(trial["add"].summary["number"] for trial in trials)})


@pytest.fixture(autouse=True)
def _two_stages(monkeypatch) -> None:
    RAN.clear()
    BREAK.clear()
    use(monkeypatch, DOUBLE, ADD)


HERE = "tests_pipeline_stages"
DOUBLE = Stage(
    name="double",
    version=1,
    run=f"{HERE}:double",
    makes="doubled",
    identity=lambda recipe, inputs: recipe.identity("train"),
)
ADD = Stage(
    name="add",
    version=1,
    run=f"{HERE}:add",
    makes="sum",
    needs={"doubled": Need(kind="doubled", files=("*.json",))},
    identity=lambda recipe, inputs: {"seed": recipe.seed},
)
SEARCH = Stage(name="search", version=1, run=f"{HERE}:search", makes="study", identity=lambda recipe, inputs: {})


def use(monkeypatch, *stages: Stage) -> None:
    """Put these stages in place of the real ones."""
    module = SimpleNamespace(double=double, add=add, search=search)
    monkeypatch.setitem(sys.modules, HERE, module)
    for name in reversed(list(graph.STAGES)):  # so that they come back in order
        monkeypatch.delitem(graph.STAGES, name)
    for stage in stages:
        monkeypatch.setitem(graph.STAGES, stage.name, stage)


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


def test_what_an_earlier_run_left_is_handed_in_and_changes_no_address(tmp_path, monkeypatch) -> None:
    seen = []

    def look(context):
        seen.append([artifact.summary for artifact in context.inputs.values()])
        return StageResult(summary={})

    looking = Stage(
        name="look",
        version=1,
        run=f"{HERE}:look",
        makes="view",
        aside=("doubled",),
        identity=lambda recipe, inputs: {"seed": recipe.seed},
    )
    use(monkeypatch, looking, DOUBLE)
    sys.modules[HERE].look = look
    for seed in (1, 1, 2):
        runner.run(recipe(seed=seed), root=tmp_path)
    assert seen == [[], [{"number": 2 * 65536}]], "not there yet; cached; there"


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


def test_what_refuses_before_it_made_anything_leaves_no_folder(tmp_path) -> None:
    BREAK.add("refuse")
    with pytest.raises(DataError, match="not yet"):
        runner.run(recipe(), root=tmp_path)
    assert not list(tmp_path.glob("*.partial"))


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path) -> None:
    BREAK.add("disk")
    with pytest.raises(MachineError, match="the disk is full"):
        runner.run(recipe(), root=tmp_path)
    BREAK.clear()
    runner.run(recipe(), root=tmp_path)
    assert RAN == ["double", "add", "add"]


def test_a_full_disk_does_not_lose_the_time_that_was_spent(tmp_path, monkeypatch) -> None:
    def refuse(handle) -> None:
        raise OSError(28, "No space left on device")

    BREAK.add("double")
    with pytest.raises(DataError, match="no more"):
        runner.run(recipe(), root=tmp_path)
    (seconds,) = tmp_path.glob("double-*.partial/.seconds")
    seconds.write_text("7.500")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(DataError, match="no more"):  # what ended the stage is said, not what followed from it
            runner.run(recipe(), root=tmp_path)
    assert seconds.read_text() == "7.500"
    BREAK.clear()
    assert runner.run(recipe(), root=tmp_path)["double"].manifest.execution["seconds"] >= 7.5


@pytest.mark.parametrize("left", ["", "7.5.0", "nan"])
def test_seconds_that_are_no_number_stop_no_work(tmp_path, left) -> None:
    BREAK.add("double")
    with pytest.raises(DataError, match="no more"):
        runner.run(recipe(), root=tmp_path)
    (seconds,) = tmp_path.glob("double-*.partial/.seconds")
    seconds.write_text(left)
    BREAK.clear()
    assert 0 <= runner.run(recipe(), root=tmp_path)["double"].manifest.execution["seconds"] < 60


def test_events_say_what_ran_and_what_was_there(tmp_path) -> None:
    heard = []
    for _ in range(2):
        made = runner.run(recipe(), root=tmp_path, listeners=(heard.append,))
    took = {name: format_seconds(artifact.manifest.execution["seconds"]) for name, artifact in made.items()}
    said = [(event.name, event.text) for event in heard if event.kind == "stage"]
    assert said == [
        ("double", "started"),
        ("double", f"done in {took['double']}"),
        ("add", "started"),
        ("add", f"done in {took['add']}"),
        ("double", "cached"),
        ("add", "cached"),
    ]


def test_find_makes_nothing(tmp_path) -> None:
    assert runner.find(recipe(), root=tmp_path, upto="add") == {}
    made = runner.run(recipe(), root=tmp_path, upto="double")
    assert runner.find(recipe(), root=tmp_path, upto="add") == made
    assert RAN == ["double"]


def test_the_manifest_records_how_it_was_made(tmp_path) -> None:
    made = runner.run(recipe(), root=tmp_path)
    execution = made["add"].manifest.execution
    assert execution["seconds"] >= 0 and execution["python"] and execution["packages"]["numpy"] != "absent"
    assert made["add"].manifest.kind == "sum"
    assert made["add"].manifest.inputs == {"doubled": made["double"].digest(("*.json",))}


def test_child_runs_share_what_the_parent_has_and_outlive_an_interruption(tmp_path, monkeypatch) -> None:
    use(monkeypatch, DOUBLE, ADD, SEARCH)
    runner.run(recipe(), root=tmp_path, upto="double")
    BREAK.add("search")
    with pytest.raises(DataError, match="no more"):
        runner.run(recipe(), root=tmp_path, upto="search")
    assert RAN == ["double", "search", "add", "add", "add"], "no child doubles again"
    BREAK.clear()
    made = runner.run(recipe(), root=tmp_path, upto="search")
    assert RAN[5:] == ["search"], "the children were done"
    assert made["search"].summary["best"] == 2 * 65536 + 3
    (below,) = (tmp_path / "children").iterdir()
    assert below.name == made["search"].path.name
    assert len(list(below.glob("add-*"))) == 3 and not list(tmp_path.glob("add-*"))


def test_damage_of_what_is_there_is_no_success(tmp_path) -> None:
    made = runner.run(recipe(), root=tmp_path)
    (made["add"].path / "number.json").write_text("131073")
    with pytest.raises(DataError, match="number.json: damaged file"):
        runner.run(recipe(), root=tmp_path)


def test_work_whose_manifest_alone_is_lost_is_not_done_again(tmp_path) -> None:
    made = runner.run(recipe(), root=tmp_path)
    (made["add"].path / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"manifest\.json: a file of this artefact is missing; delete "):
        runner.run(recipe(), root=tmp_path)
    assert RAN == ["double", "add"]
    assert (made["add"].path / "number.json").is_file()


def test_a_finished_run_can_be_looked_at_where_nothing_can_be_written(tmp_path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        made = runner.run(recipe(), root=place / "runs")
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        assert runner.run(recipe(), root=place / "runs") == made
        assert runner.find(recipe(), root=place / "runs", upto="add") == made
        with pytest.raises(MachineError, match="cannot write"):
            runner.run(recipe(seed=9), root=place / "runs")
    finally:
        subprocess.run(["umount", place], check=True)
