"""What a recipe's plan takes for granted has its origin, and a range that holds what was counted."""

from __future__ import annotations

import math

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.planner.plan.estimated_facts import dataset_assumptions, deviation, estimated_facts
from trainwright.planner.plan.workload import DEFAULT_VALIDATION_TOKENS, resolve
from trainwright.spec.workload import DatasetFacts

COUNTED = DatasetFacts(vocabulary=1024, train_tokens=10_240, train_documents=7, validation_tokens=900, counted=True)


def test_a_validation_says_where_its_size_is_from(tmp_path) -> None:
    recipe = planned_recipe(tmp_path)
    fixed = planned_recipe(tmp_path, "train.validation.tokens=512")
    cases = (
        (recipe, COUNTED, 900, "recipe", "the dataset"),
        (recipe, estimated_facts(recipe, corpus_bytes=10_000), 833, "default", "estimated: the corpus's bytes, 1.80"),
        (
            recipe,
            DatasetFacts(vocabulary=1024),
            DEFAULT_VALIDATION_TOKENS,
            "default",
            "unknown before the data are there; train.v",
        ),
        (fixed, COUNTED, 512, "recipe", ""),
    )
    for asked, facts, tokens, origin, source in cases:
        entry = dataset_assumptions(asked, facts)[0]
        assert (entry.value, entry.origin) == (tokens, origin)
        assert entry.source.startswith(source)
        assert resolve(asked, facts, precision="fp32").validation_tokens == tokens


NARROW, NETWORK = "contract.additions.families:FAMILY", "fixtures.other_network:FAMILY"


@pytest.mark.parametrize(
    ("key", "name", "kind", "counted", "seen"),
    [
        ("train.optimizer.name", "contract.additions.optimizers:momentum", "optimizer", "as adamw", ""),
        ("train.optimizer.name", "fixtures.other_network:like_muon", "optimizer", "as muon", ""),
        ("task.name", "contract.additions.tasks:TASK", "task", "as one pass", ""),
        ("model.family", NETWORK, "network", "as the decoder", "fixtures.other_network:Narrow"),
    ],
)
def test_what_nobody_has_measured_is_counted_as_another_and_the_plan_says_so(
    tmp_path, key, name, kind, counted, seen
) -> None:
    plan = plan_of(planned_recipe(tmp_path, f"{key}={name}"))
    (entry,) = (each for each in plan.estimate.assumptions if each.key.endswith("_unknown"))
    assert (entry.key, entry.value, entry.origin) == (f"{kind}_unknown", counted, "default")
    assert entry.source == f"nobody has measured {seen or name}"
    assert plan.unmeasured == {kind: seen or name}


@pytest.mark.parametrize("key", ["train.optimizer.name=adamw", "train.optimizer.name=muon", f"model.family={NARROW}"])
def test_what_was_measured_is_not_spoken_of(tmp_path, key) -> None:
    plan = plan_of(planned_recipe(tmp_path, key))
    assert plan.unmeasured == {} and not [e for e in plan.estimate.assumptions if e.key.endswith("_unknown")]


def test_a_source_says_itself_whether_its_bytes_are_text(tmp_path) -> None:
    def range_of(kind: str) -> float:
        source = f"data.sources=[{{kind: '{kind}', paths: [x]}}]"
        recipe = planned_recipe(tmp_path, "train.duration=3 epochs", source)
        return deviation(recipe, DatasetFacts(vocabulary=1024, train_tokens=10_240, train_documents=7))

    assert range_of("fixtures.plain_source:Plain") == range_of("text") < range_of("contract.additions.sources:Ini")


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


def test_frozen_parameters_are_counted_as_trained_and_the_plan_says_so(tmp_path) -> None:
    groups = "train.optimizer.groups=[{match: 'blocks.0.*', frozen: true}]"
    plan, plain = (plan_of(planned_recipe(tmp_path, *keys)) for keys in ((groups,), ()))
    (entry,) = (each for each in plan.estimate.assumptions if each.key == "frozen")
    assert entry.value == "as trained" and "memory and time are less" in entry.source
    assert plan.estimate.memory == plain.estimate.memory
    assert not [each for each in plain.estimate.assumptions if each.key == "frozen"]
