from __future__ import annotations

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.forecast.played import moved_slowdown, played
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(sequence_tokens=2048, batch_tokens=64 * 2048, steps=100, precision="bf16", optimizer="adamw")


def predicted(plan):
    model = catalogue_model("llama3-8b")
    run = RunSpec(model=model, workload=WORK, cluster=cluster("8xh100-sxm"), stack=read_stack(OURS))
    return forecast(run, Layouts.of([plan], ["full"], WORK), CATALOGUE)


def test_without_a_pipeline_nothing_is_played():
    one = predicted(ParallelPlan(dp_shard=8))
    assert played(one) is one


def test_stages_before_the_head_wait_for_each_other_only():
    """Filling and draining cross stages without the head: the wait is theirs, in closed form it is the last one's.

    By operations a stage of 8 blocks (218M weights each, forward twice, backward twice that) takes 0.82 of one with the
    head (525M weights, no recomputation) as well.
    """
    one = predicted(ParallelPlan(pp=4, dp_shard=2))
    out = played(one)
    blocks, head = 4 * 8 * 218, 3 * 525
    assert out.step.idle[0] / one.step.idle[0] == pytest.approx(blocks / (blocks + head), rel=0.05)
    assert np.array_equal(out.step.forward, one.step.forward) and out.memory is one.memory
    assert out.step_s[0] - one.step_s[0] == pytest.approx(out.step.idle[0] - one.step.idle[0])


def test_what_is_on_the_device_moved_nothing():
    assert moved_slowdown(played(predicted(ParallelPlan(pp=4, dp_shard=2)))) == 1
    assert moved_slowdown(predicted(ParallelPlan(dp_shard=8, offload="optimizer"))) > 1
