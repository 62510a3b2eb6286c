"""A plan says the peak rates that follow the batch or the width, by hand."""

from __future__ import annotations

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.stages.plan.rates import rate_assumptions


def test_rates_that_nothing_scales_are_not_told(tmp_path):
    assert rate_assumptions(planned_recipe(tmp_path)) == ()


def test_a_plan_says_the_resulting_rates(tmp_path):
    recipe = planned_recipe(tmp_path, "train.optimizer.lr=1e-3")
    batch, width = recipe.train.batch_tokens, recipe.model.width
    scaling = {"train.rate_scaling.base_batch_tokens": batch // 4, "model.mup.base_width": width // 2}
    keys = [f"{key}={value}" for key, value in scaling.items()]
    plan = plan_of(planned_recipe(tmp_path, "train.optimizer.name=adamw", "train.optimizer.lr=1e-3", *keys))
    told = {each.key: each for each in plan.estimate.assumptions}
    assert told["peak_rate"].value == pytest.approx(2e-3), "the root of four times the batch"
    assert told["matrix_peak_rate"].value == pytest.approx(1e-3), "half of that at twice the width"
    assert f"a width of {width // 2}, over 2" in told["matrix_peak_rate"].source
