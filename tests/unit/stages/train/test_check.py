"""Trainings that cannot begin are refused without torch, and those that can are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.core.records import to_json
from trainwright.model.families.llama import to_config
from trainwright.stages.train.check import problems


@pytest.mark.parametrize("duration", ["1 steps", "513 tok", "0.001 tok/param", "3 epochs", "0.5 epochs"])
def test_what_can_be_trained(tmp_path, duration) -> None:
    assert list(problems(planned_recipe(tmp_path, f"train.duration={duration}"), None)) == []


@pytest.mark.parametrize("duration", ["0 steps", "511 tok", "1e-6 tok/param", "0 epochs"])
def test_what_is_shorter_than_one_update(tmp_path, duration) -> None:
    (problem,) = problems(planned_recipe(tmp_path, f"train.duration={duration}"), None)
    assert problem.where == "train.duration" and problem.seen is not None and duration in problem.seen


def test_pretrained_weights_have_to_be_there(tmp_path) -> None:
    folder = tmp_path / "pretrained"
    recipe = planned_recipe(tmp_path, f"model.init_from={folder}")
    assert [problem.what for problem in problems(recipe, None)] == ["no such directory"]
    folder.mkdir()
    assert [problem.what for problem in problems(recipe, None)] == ["no model in this directory"]
    (folder / "config.json").write_text("{")
    assert [problem.what for problem in problems(recipe, None)] == ["cannot read JSON"]
    (folder / "config.json").write_text(json.dumps({"model_type": "mistral"}))
    assert [problem.what for problem in problems(recipe, None)] == ["this model_type can be planned, not trained"]


@pytest.fixture
def base(tmp_path):
    """Writes the model of a recipe with these overrides as a checkpoint or as a Hugging Face directory holds it."""

    def write(*overrides: str, file: str = "model.json") -> Path:
        spec = planned_recipe(tmp_path, *overrides).model_spec(vocabulary=77)
        folder = tmp_path / "pretrained"
        folder.mkdir(exist_ok=True)
        record = to_json(spec) if file == "model.json" else to_config(spec)
        (folder / file).write_text(json.dumps(record))
        return folder

    return write


@pytest.mark.parametrize("file", ["model.json", "config.json"])
def test_a_base_of_another_shape_is_named_in_plain_words(tmp_path, base, file) -> None:
    folder = base("model.width=192", "model.layers=5", file=file)
    recipe = planned_recipe(tmp_path, f"model.init_from={folder}")
    assert [(problem.what, problem.where) for problem in problems(recipe, None)] == [
        (f"the base has layers 5, this recipe asks for {recipe.model.layers}", "model.init_from"),
        (f"the base has width 192, this recipe asks for {recipe.model.width}", "model.init_from"),
    ]
    fixes = [problem.fix.removeprefix("write ") for problem in problems(recipe, None)]
    assert list(problems(planned_recipe(tmp_path, f"model.init_from={folder}", *fixes), None)) == []


def test_a_size_that_follows_from_the_base_s_own_setting_is_named_too(tmp_path, base) -> None:
    folder = base("model.ffn_width=100")
    (problem,) = problems(planned_recipe(tmp_path, f"model.init_from={folder}"), None)
    assert problem.what.startswith("the base has ffn_width 100, this recipe asks for ")


def test_another_family_is_all_that_is_said(tmp_path, base) -> None:
    folder = base("model.family=gpt2")
    (problem,) = problems(planned_recipe(tmp_path, f"model.init_from={folder}"), None)
    assert problem.what == "the base has family gpt2, this recipe asks for llama"
    assert problem.fix == "write model.family=gpt2"
