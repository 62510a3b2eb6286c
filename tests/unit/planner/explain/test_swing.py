from dataclasses import replace

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.hardware.catalogue.models import model
from trainwright.planner.explain.swing import largest
from trainwright.planner.plan import cluster
from trainwright.planner.plan.cluster import plan_run
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of

STACKS = ("default", "unsloth")


def planned(**asked):
    return plan_run(scenario_of(Question(model=model("llama3-8b"), **asked)))


def of(plan, key):
    return next((each for each in largest(plan, 50) if each.assumption.key == key), None)


def test_the_tokens_that_nobody_gave_move_the_time_by_two():
    assert of(planned(on="8xh100-sxm"), "length").factor == 2.0
    assert of(planned(on="8xh100-sxm", tokens=10**12), "length") is None


def test_validations_of_a_split_that_is_not_counted_move_a_short_run(tmp_path):
    short = plan_of(planned_recipe(tmp_path, "train.duration=2 steps"))
    phases, swing = short.estimate.run_phases, of(short, "validation")
    assert swing.assumption.source == "unknown before the data are there; train.validation.tokens bounds it"
    assert swing.factor == pytest.approx((phases.total_s + phases.evaluate) / phases.total_s) and swing.factor > 1.5
    assert swing in largest(short)
    assert of(plan_of(planned_recipe(tmp_path, "train.validation.tokens=512")), "validation") is None


def test_experts_that_are_not_quantised_move_the_memory_where_it_is_tight():
    asked = {"method": "qlora", "on": "a100-80gb"}
    plans = [plan_run(scenario_of(Question(model=model("qwen3-30b-a3b"), stack=name, **asked))) for name in STACKS]
    plain, quantising = (of(plan, "frozen_experts") for plan in plans)
    assert plain.of == "memory" and plain.factor < 0.5 and plain.assumption.value == "16 bits" and quantising is None
    assert plans[0].estimate.memory.weights > 3 * plans[1].estimate.memory.weights
    assert of(planned(**asked), "frozen_experts") is None, "it has none"


def test_the_overhead_moves_a_run_by_what_it_takes():
    long = cluster.planned(scenario_of(Question(model=model("llama3-8b"), on="64x8xh100-sxm", tokens=15 * 10**12)))
    parts = long.run.parts
    factor = parts.total_s[0] / (parts.total_s[0] - parts.overhead_s[0])
    assert of(long.plan, "overhead").factor == pytest.approx(factor, rel=1e-3)
    # A run of minutes takes long to start, which is no overhead of long runs.
    assert of(planned(on="8xh100-sxm", tokens=10**7), "overhead") is None
    assert of(planned(on="h100-sxm", tokens=10**9), "overhead") is None


def test_frozen_weights_are_not_kept_as_trained_ones():
    tight = planned(on="rtx-4090", method="lora", tokens=10**7)
    assert tight.estimate.memory.weights > 0.7 * tight.estimate.memory_available_bytes * 0.9
    assert of(tight, "states") is None or of(tight, "states").factor < 1.1


def test_packing_that_nobody_named_moves_the_time_by_what_full_sequences_take():
    padded = planned(on="rtx-4090", method="qlora")
    assert padded.workload.example_tokens is not None
    packed = planned(on="rtx-4090", method="qlora", packing="on")
    swing = of(padded, "usual_packing")
    assert swing.of == "time" and swing.assumption.origin == "default"
    assert swing.factor == pytest.approx(packed.estimate.seconds.mid / padded.estimate.seconds.mid, rel=0.1)
    assert swing in largest(padded), "twice as long is named first"
    assert of(packed, "usual_packing") is None
    assert of(planned(on="rtx-4090", method="qlora", packing="off"), "usual_packing") is None


def test_a_price_that_nobody_knows_comes_first():
    plan = planned(on="mi300x", method="lora")
    first, *others = largest(plan)
    assert (first.assumption.key, first.of) == ("price", "cost")
    assert len(others) == 2 and others[0].size >= others[1].size


def test_memory_matters_where_it_is_tight():
    tight = planned(on="8xh100-sxm", method="full")
    memory = tight.estimate.memory
    states = (memory.weights + memory.gradients + memory.optimizer) / 2
    loose = replace(tight, estimate=replace(tight.estimate, memory_available_bytes=10 * memory.total_bytes))
    filled = replace(tight, estimate=replace(tight.estimate, memory_available_bytes=memory.total_bytes))
    assert of(loose, "states") is None
    named = [each for each in filled.estimate.assumptions if each.key == "states"]
    assert not named or of(filled, "states").factor == pytest.approx(1 - states / memory.total_bytes)


def test_a_contract_moves_the_dollars_by_what_is_paid_for_nothing():
    contract = planned(on="128x8xh100-sxm", tokens=10**10, clouds=("nebius",))
    seconds = contract.estimate.seconds.mid
    first = largest(contract)[0]
    assert (first.assumption.key, first.of) == ("billing", "cost")
    assert first.factor == pytest.approx(30 * 86400 / seconds, rel=1e-6)
    assert of(planned(on="8xh100-sxm", tokens=10**10, clouds=("nebius",)), "billing") is None


def test_devices_that_are_not_to_be_had_come_first():
    spot = planned(on="128x8xh100-sxm", tokens=10**10, clouds=("nebius",), price_kind="spot")
    assert (largest(spot)[0].assumption.key, largest(spot)[0].of) == ("availability", "cost")


def test_what_a_run_that_does_not_fit_would_cost_is_none_of_it():
    plan = planned(on="l4", price=1.0)
    assert not plan.estimate.fits and largest(plan)
    assert all(each.of != "cost" for each in largest(plan))
