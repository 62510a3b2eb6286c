from __future__ import annotations

from dataclasses import replace

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.plan.cluster import AtRate, plan_run
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.render.plans.cluster import _at_rate, verdict


def test_too_near_to_the_limit_is_said():
    plan = plan_run(scenario_of(Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm")))
    unsure = replace(plan, estimate=replace(plan.estimate, fit="uncertain"))
    assert verdict(unsure).startswith("uncertain, too near to the limit to say: ")


def test_a_rate_beyond_the_peak_says_so():
    held = AtRate(flops_per_s=4e14, seconds=60.0, peak_flops_per_s=989e12)
    assert "cannot hold" not in _at_rate(held)
    assert _at_rate(replace(held, flops_per_s=5e15)).endswith("it cannot hold them: beyond its peak of 989 TFLOP/s")
