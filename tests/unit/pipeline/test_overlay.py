"""Keys laid over a recipe: merged as overrides are, the rest unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.core.config.load import load
from trainwright.core.errors import RecipeErrors
from trainwright.pipeline.overlay import laid_over
from trainwright.spec.recipe import Recipe

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_keys_change_nothing_but_the_list_of_steps(path) -> None:
    recipe = load(Recipe, files=[path], environ={}).value
    assert laid_over(recipe, {}, at="stages.0") == recipe.model_copy(update={"stages": None})


def test_equals_the_same_overrides_on_the_command_line(tmp_path) -> None:
    keys = {"train": {"optimizer": {"lr": "2e-5"}, "exec": {"checkpoint_every": "2 min"}}, "data": {"strict": True}}
    expected = planned_recipe(
        tmp_path, "train.optimizer.lr=2e-5", "train.exec.checkpoint_every=2 min", "data.strict=true"
    )
    assert laid_over(planned_recipe(tmp_path), keys, at="stages.0") == expected


def test_a_source_of_another_kind_replaces_the_list(tmp_path) -> None:
    changed = laid_over(planned_recipe(tmp_path), {"data": {"sources": [{"kind": "text", "paths": ["a"]}]}}, at="s.0")
    assert [source.kind for source in changed.data.sources] == ["text"]
    assert changed.data.tokenizer.vocabulary == 1024


def test_each_problem_names_its_key_below_the_step(tmp_path) -> None:
    keys = {"train": {"duration": 7, "optimizer": {"lr": 0}}, "model": {"layers": "two"}}
    with pytest.raises(RecipeErrors) as caught:
        laid_over(planned_recipe(tmp_path), keys, at="stages.3")
    assert {problem.where for problem in caught.value.problems} == {
        "stages.3.train.duration",
        "stages.3.train.optimizer.lr",
        "stages.3.model.layers",
    }
