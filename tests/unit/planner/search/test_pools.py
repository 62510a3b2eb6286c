from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.search.layouts import best_layouts
from trainwright.planner.search.pools import compare_pool
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

STACK, MODEL = read_stack("default"), catalogue_model("llama3-8b")
WORK = Workload(
    sequence_tokens=8192, batch_tokens=128 * 8192, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)
FAST, SLOW = catalogue_cluster("8xh100-sxm"), catalogue_cluster("8xa100-sxm-80gb")
RUN = RunSpec(model=MODEL, workload=WORK, cluster=FAST, stack=STACK)


def test_two_equal_clusters_share_a_batch_in_halves():
    pool = compare_pool(RUN, FAST)
    (way,) = [each for each in pool.ways if each.kind == "batch"]
    half = best_layouts(replace(RUN, workload=replace(WORK, batch_tokens=WORK.batch_tokens // 2)), count=1)[0]
    assert [side.share for side in way.sides] == [0.5, 0.5]
    assert way.step_s == pytest.approx(half.step_s + way.exchange_s)
    # fp32 gradients of all parameters, at 95 % of eight devices' shares of the network.
    expected = 4 * total_parameters(MODEL) / (0.95 * 8 * FAST.scale_out.bytes_per_s)
    assert way.exchange_s == pytest.approx(expected)


def test_a_slower_second_kind_gets_the_smaller_share():
    pool = compare_pool(replace(RUN, cluster=SLOW), FAST)
    alone = {way.sides[0].cluster.device.name: way.step_s for way in pool.ways if way.kind == "alone"}
    ideal = alone["h100-sxm"] / sum(alone.values())
    for way in pool.ways:
        if way.kind != "alone":
            assert way.sides[0].share == pytest.approx(ideal, abs=0.1)
            assert way.step_s < min(alone.values())
    assert pool.verdict.startswith("use both, ")
    assert "times as fast" in pool.verdict
    assert [way.step_s for way in pool.ways] == sorted(way.step_s for way in pool.ways)


def test_a_slow_network_between_them_makes_one_better_alone():
    slow, fast = (replace(each, scale_out=replace(each.scale_out, bytes_per_s=1e7)) for each in (SLOW, FAST))
    pool = compare_pool(replace(RUN, cluster=slow), fast)
    assert pool.ways[0].kind == "alone"
    assert pool.verdict.startswith("use 8 h100-sxm alone: both would be slower")


def test_what_neither_can_hold_both_can():
    run = RunSpec(
        model=catalogue_model("llama3-70b"),
        workload=replace(WORK, batch_tokens=256 * 8192),
        cluster=catalogue_cluster("4x8xa100-sxm-40gb"),
        stack=STACK,
    )
    pool = compare_pool(run, catalogue_cluster("8xh200-sxm"))
    assert {way.kind for way in pool.ways} == {"layers"}
    assert "neither has the memory alone" in pool.verdict


def test_images_are_divided_as_a_batch_alone():
    work = Workload(sequence_tokens=1, batch_tokens=4096, steps=1, precision="bf16", optimizer="sgd")
    pool = compare_pool(RunSpec(model=catalogue_model("resnet-50"), workload=work, cluster=FAST, stack=STACK), SLOW)
    assert {way.kind for way in pool.ways} == {"alone", "batch"}


def test_nothing_fits():
    pool = compare_pool(replace(RUN, model=catalogue_model("llama3.1-405b")), SLOW)
    assert pool.ways == ()
    assert pool.verdict == "neither alone nor together: the run does not fit"
