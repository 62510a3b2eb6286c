"""Shares of a step: what it would be shorter by without each kind of work."""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.forecast.shares import exposed, work_shares
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.layout import parse_layout
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.rates.learnt import Reference
from trainwright.spec.run import PlacedRun

LARGE = Question(model=catalogue_model("llama3-70b"), on="64x8xh100-sxm", tokens=10**12, price=2.0)


PIPED = Question(
    model=catalogue_model("llama3-70b"),
    on="64x8xh100-sxm",
    tokens=10**12,
    stack="megatron-core",
    layout=parse_layout("tp=8,pp=8"),
)


@pytest.fixture(scope="module", params=[LARGE, PIPED], ids=["sharded", "pipelined"])
def made(request):
    return planned(scenario_of(request.param))


def test_communication_by_kind_sums_to_what_is_exposed(made):
    forecast = made.choice.forecast
    assert sum(part.seconds for part in exposed(forecast)) == pytest.approx(
        float(forecast.step.communicate[0]), rel=1e-6
    )


def test_the_bottleneck_is_the_largest_share(made):
    shares = work_shares(made.choice.forecast)
    assert made.plan.estimate.bottleneck.startswith(max(shares, key=lambda share: share.seconds).name)


def test_measured_runs_scale_every_share():
    """Runs that took a quarter longer than predicted: no kind of work takes the blame for all of it."""
    before = planned(scenario_of(PIPED))
    run = replace(before.scenario.run, workload=before.plan.workload)
    known = (
        Reference(
            placed=PlacedRun(run=run, parallel=before.plan.parallel), log_speed=float(np.log(0.8)), log_memory=None
        ),
    )
    after = planned(replace(before.scenario, references=known))
    slower = float(after.choice.forecast.step_s[0] / before.choice.forecast.step_s[0])
    assert slower == pytest.approx(1.25, rel=0.02)
    for shares in (lambda made: work_shares(made.choice.forecast), lambda made: exposed(made.choice.forecast)):
        one, other = ({share.name: share.seconds for share in shares(made)} for made in (before, after))
        assert one.keys() == other.keys()
        assert all(other[name] == pytest.approx(slower * seconds) for name, seconds in one.items())
