"""What batch norms refuse, by the check before a run and of each layout of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trainwright.model.vision.refusals import refusals
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.check import problems

RECIPE = Path(__file__).parents[4] / "recipes" / "resnet-digits.yaml"


def recipe_with(**train) -> Recipe:
    data = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    data["train"] |= train
    return Recipe.model_validate(data)


@pytest.mark.parametrize(
    ("train", "line"),
    [
        ({"exec": {"micro_batch": 32}}, "micro_batch=32: a batch norm sees its whole batch of 64 in one pass"),
        ({"exec": {"layout": {"dp_shard": 2}}}, "ranks=2: a batch norm sees its whole batch on one process"),
        ({"ema": {"decay": 0.99}}, "averaged weights have no running statistics"),
        ({"precision": "fp8"}, "no convolution computes in fp8"),
        ({"recompute": "full"}, "a second pass counts twice in batch norms"),
        ({"exec": {"on_oom": "adapt"}}, "on_oom=adapt: a smaller micro batch is not the whole batch"),
    ],
)
def test_what_divides_a_batch_or_has_no_statistics_is_refused_before_a_run(train, line):
    assert any(line in str(problem) for problem in problems(recipe_with(**train), None))


def test_the_recipe_itself_has_no_problem_whatever_its_micro_batch_is_called():
    assert list(problems(recipe_with(), None)) == []
    assert list(problems(recipe_with(exec={"micro_batch": 64}), None)) == []


def test_a_layout_is_executed_where_its_micro_batch_is_the_whole_batch():
    recipe = recipe_with()
    assert refusals(recipe, ParallelPlan(micro_batch_sequences=64)) == ()
    assert "in one pass" in refusals(recipe, ParallelPlan(micro_batch_sequences=32))[0]
    assert "on one process" in refusals(recipe, ParallelPlan(dp_replicate=2, micro_batch_sequences=32))[0]


@pytest.mark.parametrize(("size", "refused"), [(16, True), (32, True), (64, False)])
def test_one_image_of_one_place_has_no_variance(size, refused):
    """32 pixels are 16, 8, 8, 4 ... behind stem, pooling and each further stage; four stages end in one place."""
    data = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    data["model"] |= {"image_size": size}
    data["model"]["convolutions"] |= {"depths": [1, 1, 1, 1], "widths": [8, 8, 8, 8]}
    data["data"]["images"]["size"] = size
    data["train"]["batch_ramp"] = [{"batch_tokens": 1, "until": "3 steps"}]
    recipe = Recipe.model_validate(data)
    assert any("a batch of one image" in line for line in refusals(recipe, None)) == refused
    data["train"]["batch_ramp"][0]["batch_tokens"] = 2
    assert refusals(Recipe.model_validate(data), None) == ()


def test_dropout_is_refused_before_a_run():
    data = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    data["model"]["dropout"] = {"residual": 0.1}
    assert "this network drops nothing" in str(next(problems(Recipe.model_validate(data), None)))


def test_adapters_are_refused_in_one_line():
    (problem,) = problems(recipe_with(method={"name": "lora"}), None)
    assert "adapters stand beside" in str(problem)


def test_adapters_have_no_matrices_to_stand_beside():
    assert any("adapters stand beside" in line for line in refusals(recipe_with(method={"name": "lora"}), None))
