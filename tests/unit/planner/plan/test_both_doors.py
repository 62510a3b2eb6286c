"""A plan and a recommendation of one question, on one cluster: the same layout, memory, time and dollars."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.pipeline.question_fields import read_fields
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.rankable import ANY_CLUSTER, ANY_NODE, asked_for, ranked_ways
from trainwright.planner.plan.scenario import scenario_of

ASKED = {
    "a decoder": {"model": model("llama3-8b"), "tokens": 10**10, "batch_tokens": 1 << 20},
    "a decoder, its batch left open": {"model": model("llama3-8b"), "tokens": 10**10},
    "a decoder that is tuned": {"model": model("llama3-8b"), "method": "lora"},
    "a decoder and habits of its software": {"model": model("llama3-8b"), "method": "lora", "stack": "unsloth"},
    "a decoder, sharded and padded by habit": {"model": model("llama3-8b"), "method": "lora", "stack": "litgpt"},
    "a decoder whose recomputation is said": {"model": model("llama3-8b"), "tokens": 10**10, "recompute": "full"},
    "an encoder": {"model": model("bert-large"), "tokens": 10**10},
    "an encoder that tells classes apart": {"model": model("bert-large"), "task": "classify"},
    "a convolutional network": {"model": model("resnet50")},
    "a convolutional network that replicates alone": {"model": model("resnet50"), "stack": "torch-amp"},
    "a convolutional network and its batch": {"model": model("resnet50"), "batch_tokens": 512},
}


@pytest.mark.parametrize("name", ASKED)
def test_a_way_is_planned_as_it_was_recommended(name):
    tunes = ASKED[name].keys() & {"method", "task"}
    question = Question(on=ANY_NODE if tunes else ANY_CLUSTER, **ASKED[name])
    _, found = ranked_ways(question, (), devices=["h100-sxm", "rtx-4090"], most_devices=16)
    assert found.options
    # The first are what is bought; of the others each number of devices once.
    ways = {(each.device, each.devices, each.price_kind): each for each in reversed(found.options)}
    for way in ways.values():
        asked = asked_for(question, way)
        fields = read_fields({field: value for field, value in asked.items() if field != "on"})
        plan = planned(scenario_of(replace(question, on=str(asked["on"]), **fields))).plan
        where = f"{way.cluster} {way.source}"
        assert (plan.parallel, plan.workload.recompute) == (way.parallel, way.recompute), where
        assert plan.estimate.memory.total_bytes == pytest.approx(way.memory_bytes, rel=1e-3), where
        # A plan plays its pipeline out, which the search's assumption says of itself; a search counts padded lengths
        # that hardly differ as one.
        near = 0.05 if way.parallel.pp > 1 else 0.005 if plan.workload.example_tokens is not None else 1e-6
        assert plan.estimate.seconds.mid == pytest.approx(way.seconds, rel=near), where
        assert plan.estimate.usd is None or plan.estimate.usd.mid == pytest.approx(way.usd, rel=near), where
        assert plan.workload.total_tokens == way.tokens, where


def test_a_default_batch_says_what_the_other_door_takes():
    def batch(name, **more):
        scenario = scenario_of(Question(on="8xh100-sxm", model=model(name), **more))
        return next((each.source for each in scenario.assumptions if each.key == "batch"), "")

    assert batch("llama3-8b").endswith("; recommend tries larger ones too")
    assert batch("resnet50").endswith("; recommend tries larger ones too")
    assert "recommend" not in batch("llama3-8b", method="lora")
    assert "recommend" not in batch("llama3-8b", batch_tokens=10**6)


def test_what_fits_by_a_wasteful_layout_alone_fits_in_what_one_has_too():
    """Four sequences on two devices, one of which each would take alone: slices shorter than a search tries."""
    have = (cluster("8xrtx-4090"),)
    asked = Question(
        model=model("llama3-8b"), on=have[0].name, batch_tokens=1 << 12, sequence_tokens=1 << 12, tokens=10**7
    )
    plan = planned(scenario_of(asked)).plan
    _, found = ranked_ways(asked, have, devices=["l4"], most_devices=1)
    own = [each for each in found.own if each.devices == 8]
    assert plan.estimate.fits == bool(own)
    assert [each.parallel for each in own] == ([plan.parallel] if own else [])
