"""The keys of update rules: what contradicts itself, what a layout cannot have, what a plan counts."""

from __future__ import annotations

import pytest

from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.optimizer import OPTIMIZER_KEYS, OPTIMIZERS, GroupSection, SgdSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.layout import refusals


def section_of(name, **keys):
    return TrainSection.model_validate({"optimizer": {"name": name} | keys, "schedule": {"name": "constant"}}).optimizer


def test_every_name_has_its_keys_and_its_own_name_by_default():
    assert OPTIMIZER_KEYS.keys() == OPTIMIZERS.keys()
    assert all(keys().name == name for name, keys in OPTIMIZER_KEYS.items())


def test_gradient_descent_is_counted_by_its_state():
    assert (SgdSection().counted, SgdSection(momentum=0).counted) == ("sgd", "plain-sgd")


def test_what_needs_whole_matrices_refuses_layouts_that_share_them():
    section = section_of("adafactor")
    for layout, key in (({"tp": 2}, "tp"), ({"dp_shard": 2}, "zero_stage"), ({"cp": 2, "zero_stage": 1}, "zero_stage")):
        (line,) = refusals(ParallelPlan(**layout), optimizer=section)
        assert line.startswith(f"{key}=") and "whole matrices; set" in line
    assert refusals(ParallelPlan(dp_replicate=2), optimizer=section) == ()
    assert refusals(ParallelPlan(dp_shard=2, zero_stage=0), optimizer=section) == ()
    for name in set(OPTIMIZERS) - {"adafactor"}:
        assert refusals(ParallelPlan(dp_shard=2, tp=2), optimizer=section_of(name)) == ()


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"optimizer": {"name": "sgd", "momentum": 0, "nesterov": True}}, "nesterov looks ahead by the momentum"),
        ({"optimizer": {"name": "schedule-free-adamw"}}, "needs schedule.name=constant .* seen cosine"),
        (
            {"optimizer": {"name": "schedule-free-adamw"}, "schedule": {"name": "constant"}, "ema": {}},
            "averages the weights itself: leave out ema",
        ),
        ({"optimizer": {"name": "lion", "epsilon": 1}}, "epsilon"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(train, words):
    with pytest.raises(ValueError, match=words):
        TrainSection.model_validate(train)


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - {"adamw"}))
def test_adamw_alone_updates_on_the_host(name):
    (reason,) = section_of(name).refusals(ParallelPlan(offload="optimizer"))
    assert reason == f"offload=optimizer: only AdamW updates on the host, not {name}; set offload=none"


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({"match": "x"}, "needs lr or weight_decay, or frozen"),
        ({"match": "x", "frozen": True, "lr": 1}, "needs lr or weight_decay, or frozen: true and neither"),
        ({"match": "x", "lr": "y0.1"}, "a share as x0.1, seen 'y0.1'"),
        ({"match": "x", "lr": "x-1"}, "lr is above zero, as 1e-4 or x0.1, seen 'x-1'"),
        ({"match": "x", "lr": "xx"}, "lr is above zero"),
        ({"match": "x", "lr": 0}, "lr is above zero"),
        ({"match": "", "lr": 1}, "at least 1 character"),
    ],
)
def test_a_group_says_what_differs(group, words):
    with pytest.raises(ValueError, match=words):
        GroupSection.model_validate(group)
    assert GroupSection(match="x", lr="x0.1").peak(2.0) == 0.2
    assert GroupSection(match="x", lr=3).peak(2.0) == 3
    assert GroupSection(match="x", weight_decay=0).peak(2.0) == 2


def test_stages_of_a_pipeline_freeze_nothing():
    frozen = section_of("adamw", groups=[{"match": "*norm*", "frozen": True}])
    (line,) = refusals(ParallelPlan(pp=2), optimizer=frozen)
    assert line.startswith("pp=2: a stage whose parameters are all frozen") and "set pp=1" in line
    assert refusals(ParallelPlan(pp=2), optimizer=section_of("adamw", groups=[{"match": "*", "lr": "x2"}])) == ()
