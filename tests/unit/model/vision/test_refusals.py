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


def test_adapters_have_no_matrices_to_stand_beside():
    assert any("adapters stand beside" in line for line in refusals(recipe_with(method={"name": "lora"}), None))
