"""Stages hold what the whole model has; micro batches in flight are those of schedules run step by step."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.forecast.memory.stages import blocks_in_flight, passes_in_flight, stages_at, stages_of
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(
    sequence_tokens=1024, batch_tokens=1 << 20, steps=1, precision="fp16", optimizer="adamw", states="mixed"
)


def layouts(*plans, work=WORK):
    return Layouts.of(plans, [work.recompute] * len(plans), work)


@pytest.mark.parametrize(
    ("name", "pp"), [("llama3-405b", 16), ("llama3-8b", 8), ("deepseek-v3", 16), ("deepseek-v3", 2)]
)
def test_ranks_of_two_ways_have_the_blocks_of_both_their_stages(name, pp):
    """Stage s and the one as far from the end are on one rank (arXiv 2412.19437, figure 5), counted block by block."""
    model = catalogue_model(name)
    dense = [place < model.blocks - model.moe_layers for place in range(model.blocks)]
    each = math.ceil(model.blocks / pp)
    # 126 and 62 blocks, with embedding and head two more, divide on 16 stages.
    end = each - (name != "llama3-8b" and pp == 16)
    cuts = [0, *(end + each * place for place in range(pp - 1)), model.blocks]
    kinds = [dense[low:high] for low, high in itertools.pairwise(cuts)]
    made = stages_of(model, layouts(ParallelPlan(pp=pp, schedule="dualpipe")))
    for row, stage in enumerate((0, 1 if pp > 2 else 0)):
        both = kinds[stage] + kinds[pp - 1 - stage]
        assert (made.dense_layers[row, 0], made.moe_layers[row, 0]) == (sum(both), len(both) - sum(both))


def test_stages_hold_every_parameter_once_but_a_tied_head_twice():
    model = catalogue_model("llama3-8b")
    whole = stages_of(model, layouts(ParallelPlan()))
    assert whole.total[0, 0] == whole.total[1, 0] == pytest.approx(total_parameters(model), rel=1e-6)
    split = stages_of(model, layouts(ParallelPlan(pp=2))).total
    assert split.sum() == pytest.approx(total_parameters(model), rel=1e-6)
    tied = replace(model, tied=True)
    twice = stages_of(tied, layouts(ParallelPlan(pp=2))).total.sum() - total_parameters(tied)
    assert twice == pytest.approx(model.vocabulary * model.width, rel=1e-3)


def most_alive(order):
    """The most forward passes that have no backward pass yet."""
    alive = np.cumsum([1 if kind == "forward" else -1 for kind in order])
    return alive.max()


def one_forward_one_backward(warm, total):
    warm = min(warm, total)
    steady = ["forward", "backward"] * (total - warm)
    return ["forward"] * warm + steady + ["backward"] * warm


@pytest.mark.parametrize("m", [1, 3, 8, 32])
@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_micro_batches_in_flight_are_those_of_the_schedule_run_step_by_step(p, m):
    work = replace(WORK, batch_tokens=1024 * m)
    plans = [ParallelPlan(pp=p, schedule=name) for name in ("1f1b", "gpipe", "zero_bubble")]
    passes = passes_in_flight(layouts(*plans, work=work))
    for place, rank in ((0, 0), (1, p - 1)):
        assert passes[place, 0] == most_alive(one_forward_one_backward(p - rank - 1, m))
    assert (passes[:, 1] == m).all()
    assert (passes[:, 2] == min(p, m)).all()


@pytest.mark.parametrize("v", [2, 4])
@pytest.mark.parametrize("p", [2, 4])
def test_interleaved_chunks_in_flight(p, v):
    m = 4 * p
    work = replace(WORK, batch_tokens=1024 * m)
    passes = passes_in_flight(layouts(ParallelPlan(pp=p, schedule="interleaved", virtual_stages=v), work=work))
    for place, rank in ((0, 0), (1, p - 1)):
        warm = 2 * (p - rank - 1) + (v - 1) * p
        assert passes[place, 0] * v == most_alive(one_forward_one_backward(warm, m * v))


PIPELINES = (
    ParallelPlan(pp=4),
    ParallelPlan(pp=2, schedule="interleaved", virtual_stages=2, tp=2),
    ParallelPlan(pp=4, schedule="dualpipe"),
)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("parallel", PIPELINES, ids=lambda parallel: parallel.schedule)
def test_places_of_this_trainer_hold_every_parameter_once_but_a_tied_head_twice(parallel, tied):
    model = replace(catalogue_model("llama3-8b"), tied=tied)
    places = [stages_at(model, parallel, place, micro_batches=8) for place in range(parallel.pp)]
    twice = model.vocabulary * model.width * (tied and parallel.schedule != "dualpipe")
    held = sum(each.total[0, 0] for each in places) * parallel.tp
    assert held == pytest.approx(total_parameters(model) + twice, rel=1e-4)
    assert sum(each.layers[0, 0] for each in places) == model.blocks
    assert sum(each.has_head[0, 0] for each in places) == sum(each.has_embedding[0, 0] for each in places) == 1


@pytest.mark.parametrize(
    ("parallel", "chunks"),
    [
        # Counted from the order of torch 2.13's schedules for 8 micro batches, a block in each chunk.
        (ParallelPlan(pp=4), [4, 3, 2, 1]),
        (ParallelPlan(pp=4, schedule="gpipe"), [8, 8, 8, 8]),
        (ParallelPlan(pp=4, schedule="zero_bubble"), [4, 4, 4, 4]),
        (ParallelPlan(pp=4, schedule="interleaved", virtual_stages=2), [11, 9, 7, 5]),
        (ParallelPlan(pp=2, schedule="interleaved", virtual_stages=4), [9, 7]),
        (ParallelPlan(pp=4, schedule="dualpipe"), [9, 9, 9, 9]),
    ],
    ids=lambda value: value.schedule if isinstance(value, ParallelPlan) else None,
)
def test_blocks_in_flight_are_those_of_torchs_schedules(parallel, chunks):
    stages = 2 * parallel.pp if parallel.schedule == "dualpipe" else parallel.pp * parallel.virtual_stages
    model = replace(catalogue_model("llama3-8b"), layers=stages)
    found = [blocks_in_flight(model, parallel, place, micro_batches=8) for place in range(parallel.pp)]
    assert found == chunks
