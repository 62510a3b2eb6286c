from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.models import model as catalogue_model
from trainwright.hardware.nodes import cluster as catalogue_cluster
from trainwright.hardware.stacks import read_stack
from trainwright.planner.parameters import total_parameters
from trainwright.planner.search.layouts import best_layouts
from trainwright.planner.search.pools import judge
from trainwright.spec.workload import Workload

STACK, MODEL = read_stack("default"), catalogue_model("llama3-8b")
WORK = Workload(
    sequence_tokens=8192, batch_tokens=128 * 8192, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)  # fmt: skip
FAST, SLOW = catalogue_cluster("8xh100-sxm"), catalogue_cluster("8xa100-sxm-80gb")


def test_two_equal_clusters_share_a_batch_in_halves():
    found = judge(MODEL, WORK, [FAST, FAST], STACK)
    (way,) = [each for each in found.ways if each.kind == "batch"]
    half = best_layouts(MODEL, replace(WORK, batch_tokens=WORK.batch_tokens // 2), FAST, STACK, count=1)[0]
    assert [side.share for side in way.sides] == [0.5, 0.5]
    assert way.step_s == pytest.approx(half.step_s + way.exchange_s)
    # fp32 gradients of all parameters, at 95 % of eight devices' shares of the network.
    expected = 4 * total_parameters(MODEL) / (0.95 * 8 * FAST.scale_out.bytes_per_s)
    assert way.exchange_s == pytest.approx(expected)


def test_a_slower_second_kind_gets_the_smaller_share():
    found = judge(MODEL, WORK, [SLOW, FAST], STACK)
    alone = {way.sides[0].cluster.device.name: way.step_s for way in found.ways if way.kind == "alone"}
    ideal = alone["h100-sxm"] / sum(alone.values())
    for way in found.ways:
        if way.kind != "alone":
            assert way.sides[0].share == pytest.approx(ideal, abs=0.1)
            assert way.step_s < min(alone.values())
    assert found.verdict.startswith("use both, ")
    assert "times as fast" in found.verdict
    assert [way.step_s for way in found.ways] == sorted(way.step_s for way in found.ways)


def test_a_slow_network_between_them_makes_one_better_alone():
    thin = [replace(each, scale_out=replace(each.scale_out, bytes_per_s=1e7)) for each in (SLOW, FAST)]
    found = judge(MODEL, WORK, thin, STACK)
    assert found.ways[0].kind == "alone"
    assert found.verdict.startswith("use 8 h100-sxm alone: both would be slower")


def test_what_neither_can_hold_both_can():
    model, work = catalogue_model("llama3-70b"), replace(WORK, batch_tokens=256 * 8192)
    pool = [catalogue_cluster("4x8xa100-sxm-40gb"), catalogue_cluster("8xh200-sxm")]
    found = judge(model, work, pool, STACK)
    assert {way.kind for way in found.ways} == {"layers"}
    assert "neither has the memory alone" in found.verdict


def test_images_are_divided_as_a_batch_alone():
    work = Workload(sequence_tokens=1, batch_tokens=4096, steps=1, precision="bf16", optimizer="sgd")
    found = judge(catalogue_model("resnet-50"), work, [FAST, SLOW], STACK)
    assert {way.kind for way in found.ways} == {"alone", "batch"}


def test_nothing_fits():
    found = judge(catalogue_model("llama3.1-405b"), WORK, [FAST, SLOW], STACK)
    assert found.ways == ()
    assert found.verdict == "neither alone nor together: the run does not fit"


def test_three_kinds_are_not_judged():
    with pytest.raises(RecipeError, match="two kinds"):
        judge(MODEL, WORK, [FAST], STACK)
