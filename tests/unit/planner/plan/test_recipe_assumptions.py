"""What a recipe's plan takes for granted has its origin, and a range that holds what was counted."""

from __future__ import annotations

import math

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.planner.plan.estimated_facts import estimated_facts
from trainwright.planner.plan.recipe_assumptions import dataset_assumptions, deviation
from trainwright.planner.plan.workload import DEFAULT_VALIDATION_TOKENS, resolve
from trainwright.spec.plan import Assumption
from trainwright.spec.workload import DatasetFacts

COUNTED = DatasetFacts(vocabulary=1024, train_tokens=10_240, train_documents=7, validation_tokens=900, counted=True)


def test_a_validation_says_where_its_size_is_from(tmp_path) -> None:
    recipe = planned_recipe(tmp_path)
    fixed = planned_recipe(tmp_path, "train.validation.tokens=512")
    cases = (
        (recipe, COUNTED, 900, "recipe", "the dataset"),
        (recipe, estimated_facts(recipe, corpus_bytes=10_000), 833, "default", "estimated: the corpus's bytes, 1.80"),
        (recipe, DatasetFacts(vocabulary=1024), DEFAULT_VALIDATION_TOKENS, "default", "the split's size is not known"),
        (fixed, COUNTED, 512, "recipe", ""),
    )
    for asked, facts, tokens, origin, source in cases:
        entry = dataset_assumptions(asked, facts)[0]
        assert (entry.value, entry.origin) == (tokens, origin)
        assert entry.source.startswith(source)
        assert resolve(asked, facts, precision="fp32").validation_tokens == tokens


def test_an_optimizer_from_outside_is_planned_as_adamw_and_the_plan_says_so(tmp_path) -> None:
    def stand_ins(name: str) -> list[Assumption]:
        plan = plan_of(planned_recipe(tmp_path, f"train.optimizer.name={name}"))
        return [each for each in plan.estimate.assumptions if each.name == "memory and time of the optimizer"]

    (entry,) = stand_ins("contract.additions.optimizers:momentum")
    assert (entry.value, entry.origin) == ("as adamw", "default")
    assert "contract.additions.optimizers:momentum" in entry.source
    assert stand_ins("adamw") == stand_ins("muon") == []


@pytest.mark.parametrize(
    ("keys", "counted_over_estimated"),
    [
        (("data.sources=[{kind: files, paths: [x]}]",), (0.65, 0.94)),
        (("data.sources=[{kind: jsonl, paths: [x]}]",), (0.26, 1.15)),
        (
            ("data.sources=[{kind: jsonl, paths: [x], label_key: y}]", "task={name: classify, labels: [a, b]}"),
            (500 / 50, 500 / 5000),
        ),
    ],
)
def test_the_range_of_an_estimated_epoch_holds_what_was_counted(tmp_path, keys, counted_over_estimated) -> None:
    recipe = planned_recipe(tmp_path, "train.duration=3 epochs", *keys)
    estimated = DatasetFacts(vocabulary=1024, train_tokens=10_240, train_documents=7)
    factor = math.exp(1.645 * deviation(recipe, estimated))
    assert all(1 / factor < ratio < factor for ratio in counted_over_estimated)
    assert deviation(recipe, COUNTED) == 0.0
