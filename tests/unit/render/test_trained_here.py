"""What is told of a plan without reading a recipe is what writing one and reading it back says."""

from __future__ import annotations

import pytest

from fixtures.questions import scenario
from trainwright.hardware.catalogue.models import model, model_names
from trainwright.planner.plan.cluster import planned
from trainwright.render.planned_recipe import recipe_of
from trainwright.render.trained_here import is_built_here, is_trained_here
from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.model import ModelSection

OPTIMIZERS = tuple({"optimizer": name} for name in ("muon", "adafactor", "plain-sgd"))
CASES = ({}, {"method": "lora"}, {"states": "pure"}, *OPTIMIZERS)


@pytest.mark.parametrize("name", ["llama3-8b", "llama3.1-8b", "gpt2", "qwen3-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("asked", CASES, ids=str)
def test_a_recipe_is_offered_where_one_can_be_written(name, asked):
    plan = planned(scenario(model=model(name), on="8xh200-sxm", tokens=10**9, **asked)).plan
    assert is_trained_here(plan) == (recipe_of(plan, name=name) is not None)


def test_every_shape_that_is_built_here_is_a_sections():
    built = [each for each in map(model, model_names()) if isinstance(each, ModelSpec) and is_built_here(each)]
    assert {"llama", "gpt2", "gemma", "gemma2", "phi3", "qwen2", "qwen3"} <= {each.family for each in built}
    for each in built:
        names = ("family", "layers", "width", "heads", "kv_heads", "head_size", "ffn_width", "context_tokens", "tied")
        keys = {name: getattr(each, name) for name in (*names, "rope_theta", "norm_epsilon")}
        assert ModelSection(**keys).spec(vocabulary=each.vocabulary) == each
