from __future__ import annotations

from dataclasses import replace

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.plan.cluster import AtRate, plan_run
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.render.plans.cluster import _at_rate, verdict
from trainwright.spec.plan import Interval


def test_too_near_to_the_limit_is_said():
    plan = plan_run(scenario_of(Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm")))
    there = plan.estimate.memory_available_bytes
    for high, text in ((1.01, "uncertain, too near to the limit to say: "), (0.99, "probably fits (9 in 10): ")):
        interval = Interval(low=0.5 * there, mid=0.7 * there, high=high * there)
        unsure = replace(plan, estimate=replace(plan.estimate, fit="uncertain", memory_interval=interval))
        assert verdict(unsure).startswith(text)
    assert verdict(replace(plan, estimate=replace(plan.estimate, fit="fits"))).startswith("fits: ")


def test_the_verdict_agrees_with_the_range_that_is_printed():
    """A peak of so wide a range that two deviations reach the limit, and eight of ten lie below it."""
    asked = {"method": "lora", "stack": "trl-peft", "sequence_tokens": 2560}
    asked |= {"recompute": "none", "layout": {"micro_batch": 1}}
    plan = plan_run(scenario_of(Question(model=catalogue_model("gemma2-9b"), on="h100-sxm", **asked)))
    estimate = plan.estimate
    assert estimate.fit == "uncertain" and estimate.memory_interval.high < estimate.memory_available_bytes
    assert verdict(plan).startswith("probably fits (9 in 10): ")


def test_a_rate_beyond_the_peak_says_so():
    held = AtRate(flops_per_s=4e14, seconds=60.0, peak_flops_per_s=989e12)
    assert "cannot hold" not in _at_rate(held)
    assert _at_rate(replace(held, flops_per_s=5e15)).endswith("it cannot hold them: beyond its peak of 989 TFLOP/s")
