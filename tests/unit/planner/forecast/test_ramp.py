"""The mean step of a run whose batch grows, against each of its steps predicted by itself."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.planner.cost.run_cost import run_cost
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.forecast import corrected, forecast
from trainwright.planner.forecast.ramp import mean_step
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.parts.batch_sizes import BatchPart
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(
    sequence_tokens=2048,
    batch_tokens=64 * 2048,
    steps=100,
    precision="bf16",
    optimizer="adamw",
    ramp=(BatchPart(batch_tokens=16 * 2048, steps=30), BatchPart(batch_tokens=32 * 2048, steps=20)),
)
SEQUENCES = [16] * 30 + [32] * 20 + [64] * 50
PLANS = [ParallelPlan(dp_shard=8), ParallelPlan(dp_shard=8, micro_batch_sequences=2), ParallelPlan(dp_replicate=8)]


def predicted(work: Workload, plans=PLANS):
    run = RunSpec(
        model=catalogue_model("llama3-8b"), workload=work, cluster=cluster("8xh100-sxm"), stack=read_stack(OURS)
    )
    return forecast(run, Layouts.of(plans, ["full"] * len(plans), work), CATALOGUE)


def alone(sequences: int, plans=PLANS):
    return predicted(replace(WORK, ramp=(), batch_tokens=sequences * 2048), plans)


def test_the_mean_of_a_run_is_that_of_all_its_steps():
    mean, every = mean_step(predicted(WORK)), {size: alone(size) for size in set(SEQUENCES)}
    for field in fields(mean.step):
        steps = [getattr(every[size].step, field.name) for size in SEQUENCES]
        assert getattr(mean.step, field.name) == pytest.approx(np.mean(steps, axis=0), rel=1e-12), field.name
    assert mean.step_tokens == pytest.approx(np.mean(SEQUENCES) * 2048)
    assert mean.memory is not None and np.array_equal(mean.memory.device_bytes, alone(64).memory.device_bytes)


def test_a_run_takes_as_long_as_its_steps_together():
    run = predicted(WORK)
    cost = run_cost(run, run.run, total_tokens=WORK.total_tokens)
    assert WORK.total_tokens == sum(SEQUENCES) * 2048
    assert set(cost.steps) == {100}
    assert cost.parts.steps_s == pytest.approx(sum(alone(size).step_s for size in SEQUENCES))


def test_what_runs_taught_holds_for_each_size():
    taught = corrected(predicted(WORK), speed=0.5, memory=1.0, known=0.5)
    assert mean_step(taught).step_s == pytest.approx(2 * mean_step(predicted(WORK)).step_s)


def test_without_a_ramp_nothing_is_computed():
    plain = alone(64)
    assert mean_step(plain) is plain
    same = predicted(replace(WORK, ramp=(BatchPart(batch_tokens=64 * 2048, steps=9),)))
    assert mean_step(same).step_s == pytest.approx(plain.step_s)
