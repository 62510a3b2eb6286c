"""Changes get smaller until none is left, each slower than what it takes the place of."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from trainwright.core.records import from_json
from trainwright.spec.plan import Plan
from trainwright.stages.train.faults.changes import cheapest_change
from trainwright.stages.train.faults.memory import with_change


@pytest.fixture
def recipe(make_recipe):
    return make_recipe(batch_tokens=256, duration="4 steps", exec_micro_batch=8)


def plan_of(inputs) -> Plan:
    return from_json(Plan, json.loads(inputs["plan"].file("plan.json").read_text()), where="plan")


def test_changes_end_where_nothing_smaller_is_left(recipe, inputs_for) -> None:
    plan, seen = plan_of(inputs_for(recipe)), []
    while (change := cheapest_change(plan)) is not None:
        seen.append((change.micro_batch, change.recompute))
        assert change.slowdown >= 1
        recipe, plan = with_change(recipe, plan, change)
    assert seen
    assert len(seen) == len(set(seen)) < 10
    assert plan.parallel.micro_batch_sequences == 1


def test_a_device_without_rates_has_no_change(recipe, inputs_for) -> None:
    plan = plan_of(inputs_for(recipe))
    device = replace(plan.cluster.device, flops_per_s={})
    node = replace(plan.cluster.node, device=device)
    assert cheapest_change(replace(plan, cluster=replace(plan.cluster, node=node))) is None
