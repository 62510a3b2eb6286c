"""What is outside the workspace counts by its content."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.hub import COMMIT, ask, serving
from fixtures.planned_recipe import planned_recipe
from trainwright.artifact.workspace import directory_digest
from trainwright.core.errors import DataError
from trainwright.pipeline.base.outside import base_identity, questions_outside, shape_of_teacher, weights_outside
from trainwright.pipeline.graph import STAGES


def test_an_evaluation_is_made_again_when_its_questions_change(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    recipe = planned_recipe(tmp_path, f"evaluate.questions={{path: {path}}}")
    with pytest.raises(DataError, match=r"evaluate\.questions\.path: cannot read the questions .*No such file"):
        questions_outside(recipe)
    path.write_text("one")
    before = questions_outside(recipe)
    assert STAGES["evaluate"].outside(recipe, tmp_path).items() >= before.items()
    path.write_text("two")
    assert questions_outside(recipe) != before
    assert questions_outside(planned_recipe(tmp_path)) == {}


def test_a_training_is_made_again_when_its_base_or_its_teacher_changes(tmp_path: Path) -> None:
    base, teacher = tmp_path / "base", tmp_path / "teacher"
    for folder in (base, teacher):
        folder.mkdir()
        (folder / "model.json").write_text("{}")
    recipe = planned_recipe(tmp_path, f"model.init_from={base}", f"task={{name: distill, teacher: {teacher}}}")
    weights, shape = weights_outside(recipe), shape_of_teacher(recipe)
    assert weights.keys() == {"teacher", "init_from"} and shape.keys() == {"teacher"}
    assert STAGES["train"].outside(recipe, tmp_path).items() >= weights.items()
    (base / "model.safetensors").write_text("others")
    assert weights_outside(recipe)["init_from"] != weights["init_from"]
    assert weights_outside(recipe)["teacher"] == weights["teacher"]
    (teacher / "model.safetensors").write_text("others")
    assert weights_outside(recipe)["teacher"] != weights["teacher"]
    assert shape_of_teacher(recipe) == shape, "a plan counts by the shape alone"
    assert weights_outside(planned_recipe(tmp_path)) == {} == shape_of_teacher(planned_recipe(tmp_path))


def test_a_base_of_the_hub_is_told_by_its_commit_and_a_folder_by_its_files(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "some" / "model"
    folder.mkdir(parents=True)
    for name in ("model.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text(name)
    assert base_identity(str(folder)) == directory_digest(folder)
    with serving(tmp_path) as hub:
        ask(monkeypatch, hub.address, tmp_path / "cache")
        assert base_identity("hf://some/model") == f"some/model@{COMMIT}"
        assert "model.safetensors" not in hub.asked


def test_a_teacher_that_is_not_here_has_no_shape(tmp_path: Path) -> None:
    assert shape_of_teacher(planned_recipe(tmp_path, f"task={{name: distill, teacher: {tmp_path}/none}}")) == {}
