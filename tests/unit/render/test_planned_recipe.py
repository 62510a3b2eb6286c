"""The recipe of a plan is read back and planned: another way than the one that wrote it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.questions import scenario
from trainwright.hardware.catalogue.models import model
from trainwright.planner.plan.cluster import planned
from trainwright.render.planned_recipe import overrides_of, recipe_of
from trainwright.spec.recipe import Recipe

OURS = ("llama2-7b", "llama3-8b", "llama3-70b", "tinyllama", "gpt2", "gpt2-xl")


def plan_of(name="llama3-8b", on="8xh100-sxm", **asked):
    return planned(scenario(model=model(name), on=on, tokens=10**9, **asked)).plan


@pytest.mark.parametrize("name", OURS)
def test_a_recipe_says_the_planned_shape_run_and_layout(name):
    plan = plan_of(name, on="32x8xh100-sxm")
    recipe = Recipe.model_validate(recipe_of(plan, name=name))
    assert recipe.model.spec(vocabulary=recipe.data.tokenizer.vocabulary) == plan.model
    train, work = recipe.train, plan.workload
    assert (train.sequence_tokens, train.batch_tokens) == (work.sequence_tokens, work.batch_tokens)
    assert (train.duration, train.recompute, train.precision) == (f"{work.steps} steps", work.recompute, "bf16")
    asked = replace(train.exec.layout.parallel(), micro_batch_sequences=train.exec.micro_batch)
    ours = ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep", "virtual_stages", "schedule", "micro_batch_sequences")
    assert all(getattr(asked, each) == getattr(plan.parallel, each) for each in ours)
    assert asked.zero_stage == plan.parallel.zero_stage or plan.parallel.dp_shard == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"name": "deepseek-v3", "on": "64xh200-sxm"},
        {"name": "resnet-50", "tokens": None},
        {"name": "mixtral-8x7b", "on": "64xh100-sxm"},
        {"method": "lora"},
        {"states": "pure"},
        {"layout": {"offload": "all"}},
        {"optimizer": "adafactor"},
        {"packing": "off", "example_tokens": 300, "examples": 10_000, "tokens": None},
    ],
)
def test_what_no_recipe_says_has_none(asked):
    fields = {"tokens": 10**9, "model": model(asked.pop("name", "llama3-8b")), "on": asked.pop("on", "8xh100-sxm")}
    assert recipe_of(planned(scenario(**fields | asked)).plan, name="x") is None


def test_a_recipe_is_run_elsewhere_with_what_differs_alone():
    plan = plan_of()
    recipe = Recipe.model_validate(recipe_of(plan, name="x"))
    assert overrides_of(plan, recipe, plan.workload, precision=False) == []
    other = plan_of(on="2x8xh100-sxm", batch_tokens=16 * 8192, recompute="full")
    changed = overrides_of(other, recipe, plan.workload, precision=True)
    assert {f"train.batch_tokens={16 * 8192}", "train.recompute=full"} <= set(changed)
    assert f"train.duration={other.workload.steps} steps" in changed
    assert not any(each.startswith(("train.precision", "train.sequence_tokens")) for each in changed)
    assert overrides_of(plan_of(method="lora"), recipe, plan.workload, precision=False) is None
