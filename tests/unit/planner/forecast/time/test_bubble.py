"""A step with a pipeline takes what its schedule takes, event by event, with the stages that it has."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.fixed_rates import IDEAL, FixedRates, combine, counted_work, silence
from fixtures.planned_models import LLAMA
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.ranks import slowest_layers
from trainwright.planner.forecast.time import bubble
from trainwright.planner.forecast.time.bubble import layers_of_chunks, repeated_s
from trainwright.planner.forecast.time.pipeline import simulate
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(sequence_tokens=512, batch_tokens=512 * 64, steps=1, precision="bf16", optimizer="adamw")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble")


def idle_s(blocks, each, sent, layouts, rate):
    model = replace(LLAMA, layers=blocks)
    run = RunSpec(model=model, workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack("default"))
    source = FixedRates(each, rate)
    return bubble.idle_s(run, source, source.kernels(run, layouts), sent, layouts)


def shape(**plan):
    return Layouts.of([ParallelPlan(dp_replicate=4, **plan)], ["none"], WORK)  # 16 micro batches


# ----------------------------------------------------------------------------------------------------- layers of stages
def test_chunks_follow_one_another_over_the_stages():
    assert layers_of_chunks(16, 4, 2).tolist() == [[2, 2]] * 4
    assert layers_of_chunks(10, 4, 2).tolist() == [[2, 1], [2, 1], [1, 1], [1, 1]]
    # Llama 3 405B: the first and the last rank have a layer less (arXiv 2407.21783, section 3.3.2).
    assert layers_of_chunks(126, 16, 1)[:, 0].tolist() == [7, *[8] * 14, 7]


@given(st.integers(1, 130), st.integers(1, 16), st.integers(1, 4))
def test_stages_hold_all_layers_and_none_more_than_the_slowest(layers, stages, chunks):
    layers_of = layers_of_chunks(layers, stages, chunks)
    assert layers_of.shape == (stages, chunks)
    assert layers_of.sum() == layers and layers_of.min() >= 0
    model = replace(LLAMA, layers=layers)
    plan = ParallelPlan(pp=stages, virtual_stages=chunks)
    assert layers_of.sum(axis=1).max() <= slowest_layers(model, Layouts.of([plan], ["none"], WORK))[0]


# ----------------------------------------------------------------------------------------------------------- idle time
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("pp", [2, 8, 16])
def test_of_equal_stages_the_closed_form_is_exact(schedule, pp):
    plan = shape(pp=pp, schedule=schedule, virtual_stages=2 if schedule == "interleaved" else 1)
    each = counted_work(layers=2, products_s=1.0, attention_s=0.25, traffic_s=0.125)
    closed = combine(each, silence(), plan, IDEAL).idle[0]
    assert idle_s(2 * pp, each, silence(), plan, IDEAL) == pytest.approx(closed)


def test_stages_without_the_head_are_waited_for_no_longer_than_they_take():
    """1F1B: the last stage starts when the others have passed a micro batch on, and then has work to the end."""
    plan = shape(pp=4)
    each = counted_work(layers=2, products_s=1.0, head_s=0.5)
    assert idle_s(8, each, silence(), plan, IDEAL) == pytest.approx(3 * 3.0)
    assert combine(each, silence(), plan, IDEAL).idle[0] == pytest.approx(3 * 4.5)


def test_ends_with_a_layer_less_make_room_for_the_head():
    """14 layers on 4 ranks are 3, 4, 4, 3; a head as long as a layer makes the last as slow as the middle ones."""
    plan = shape(pp=4)
    each = counted_work(layers=4, products_s=4.0, head_s=1.0)
    step = combine(each, silence(), plan, IDEAL)
    phases = step.total_s[0] - step.idle[0]
    total = phases + idle_s(14, each, silence(), plan, IDEAL)
    assert phases == pytest.approx(16 * 3 * 5)
    forward = np.array([3.0, 4, 4, 4])
    least = simulate("1f1b", forward_s=forward, backward_s=forward, weight_s=forward, micro_batches=16)
    assert total == pytest.approx(max(phases, least))


def test_published_runs_say_how_much_of_it_is_waited():
    plan = shape(pp=4)
    each = counted_work(layers=2, products_s=1.0)
    half = idle_s(8, each, silence(), plan, replace(IDEAL, bubble=0.5))
    assert half == pytest.approx(0.5 * idle_s(8, each, silence(), plan, IDEAL))


def test_what_is_sent_while_stages_work_is_not_waited_for_twice():
    """Interleaved stages send four times as often, and hide it; the step is no shorter than work and sends together."""
    each, sent = counted_work(layers=2, products_s=1.0), silence(pipeline_s=0.1)
    plan = shape(pp=4, schedule="interleaved", virtual_stages=4)
    silent, heard = (idle_s(16, each, beside, plan, IDEAL) for beside in (silence(), sent))
    assert 0 <= heard < silent


def test_waits_of_launches_and_collectives_are_part_of_a_stages_time():
    plan = shape(pp=4)
    slow = replace(IDEAL, launch_s=1e-3)
    each, sent = counted_work(layers=2, products_s=0.001, kernels=1000.0), silence(tensor_s=0.5)
    assert idle_s(8, each, sent, plan, slow) == pytest.approx(combine(each, sent, plan, slow).idle[0])


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_both_ways_the_closed_form_is_near(pp):
    """Half of the head on the first rank, hops and experts hidden by the other direction; 16 micro batches."""
    each = counted_work(layers=2, products_s=1.0, traffic_s=0.5)
    for sent in (silence(), silence(expert_s=0.4), silence(expert_s=0.2, pipeline_s=0.1)):
        plan = shape(pp=pp, schedule="dualpipe")
        step = combine(each, sent, plan, IDEAL)
        phases = step.total_s[0] - step.idle[0]
        assert phases + idle_s(2 * pp, each, sent, plan, IDEAL) == pytest.approx(step.total_s[0], rel=0.05)


def test_without_a_pipeline_or_its_schedule_nothing_is_played():
    each = counted_work(layers=8, products_s=1.0)
    assert idle_s(8, each, silence(), shape(), IDEAL) is None
    uneven = Layouts.of([ParallelPlan(pp=3, schedule="interleaved", virtual_stages=2)], ["none"], WORK)
    assert idle_s(12, each, silence(), uneven, IDEAL) is None  # 64 micro batches in rounds of 3


# -------------------------------------------------------------------------------------------------- many micro batches
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rounds_that_repeat_need_not_be_played(schedule):
    rng = np.random.default_rng(0)
    for _ in range(30):
        stages = int(rng.integers(2, 9))
        chunks = int(rng.integers(2, 4)) if schedule == "interleaved" else 1
        micro_batches = stages * int(rng.integers(4, 12))
        micro_batches += 0 if schedule == "interleaved" else int(rng.integers(0, stages))
        times = [np.full((stages, chunks), rng.uniform(0.5, 2)) for _ in range(3)]
        for time in times:
            time[0] *= rng.uniform(0.5, 1)
            time[-1, -1] += rng.uniform(0, 1)
        hop_s = float(rng.uniform(0, 0.1))

        def played_s(count, schedule=schedule, times=times, hop_s=hop_s):
            forward, backward, weight = times
            each = {"forward_s": forward, "backward_s": backward, "weight_s": weight}
            return simulate(schedule, **each, micro_batches=count, hop_s=hop_s)

        whole = played_s(micro_batches)
        assert repeated_s(played_s, stages, micro_batches) == pytest.approx(whole, rel=0.005)
