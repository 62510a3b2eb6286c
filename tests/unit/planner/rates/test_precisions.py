"""Rates of a precision that nobody measured: products faster in proportion, everything else as measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.rates.precisions import OtherPrecision
from trainwright.planner.rates.probed import Probed
from trainwright.spec.plan import INTERVAL
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan
from trainwright.testing.machine import fake_machine, fake_probes


@pytest.fixture
def run(tmp_path) -> RunSpec:
    plan = plan_of(planned_recipe(tmp_path, "train.precision=bf16"), fake_machine())
    return RunSpec(model=plan.model, workload=plan.workload, cluster=plan.cluster, stack=read_stack(OURS))


def test_products_alone_are_faster(run) -> None:
    probed = Probed(probes=fake_probes())
    layouts = Layouts.of([ParallelPlan(micro_batch_sequences=size) for size in (1, 4)], ["none"] * 2, run.workload)
    measured, rest = probed.kernels(run, layouts), probed.kernels(run, layouts, without=("products",))
    twice = OtherPrecision(source=probed, measured="bf16", faster=2.0).kernels(run, layouts)
    for name in ("forward", "backward", "weight"):
        products = getattr(measured, name) - getattr(rest, name)
        np.testing.assert_allclose(getattr(twice, name), getattr(rest, name) + products / 2)
    for name in ("head", "head_backward", "update", "accumulate"):
        np.testing.assert_array_equal(getattr(twice, name), getattr(measured, name))
    same = OtherPrecision(source=probed, measured="bf16").kernels(run, layouts)
    np.testing.assert_array_equal(same.forward, measured.forward)


def test_doubt_widens_the_range(run) -> None:
    probed = Probed(probes=fake_probes())
    doubtful = OtherPrecision(source=probed, measured="fp32", doubt=100.0)
    assert doubtful.spread(run) == pytest.approx(math.hypot(probed.spread(run), math.log(100) / INTERVAL))
    assert doubtful.process(run) == probed.process(run)
    assert str(doubtful.exposure(run)) == str(probed.exposure(run))
