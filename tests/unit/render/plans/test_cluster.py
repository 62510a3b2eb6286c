from __future__ import annotations

from dataclasses import replace

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.plan.cluster import plan_run
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.render.plans.cluster import verdict


def test_too_near_to_the_limit_is_said():
    plan = plan_run(scenario_of(Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm")))
    unsure = replace(plan, estimate=replace(plan.estimate, fit="uncertain"))
    assert verdict(unsure).startswith("uncertain, too near to the limit to say: ")
