"""What is asked about without a recipe is refused where a recipe would be."""

from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.ways import with_ways
from trainwright.stages.plan.executed import refuses


def scenario(name, on="8xh100-sxm", **asked):
    return scenario_of(Question(model=model(name), on=on, stack="trainwright", **asked))


@pytest.mark.parametrize(
    ("name", "asked", "line"),
    [
        ("mixtral-8x7b", {"precision": "fp8"}, "experts' products are not in float8"),
        ("mixtral-8x7b", {"optimizer": "muon"}, "those of a layer's experts lie in one tensor"),
        ("mixtral-8x7b", {"moments": "int8"}, "its blocks lie in matrices"),
        ("llama3-8b", {"method": "lora", "precision": "fp8"}, "products with adapters beside them"),
    ],
)
def test_what_no_layout_executes_is_refused(name, asked, line):
    with pytest.raises(RecipeError, match=f"stack: this trainer does not train it so: .*{line}"):
        scenario(name, **asked)


@pytest.mark.parametrize(
    "asked",
    [
        {"optimizer": "adafactor"},
        {"precision": "fp8"},
        {"moments": "int8"},
        {"method": "qlora"},
        {"sequence_tokens": 131_072, "tokens": 10**9},
    ],
)
def test_the_layout_that_is_planned_is_executed(asked):
    made = planned(scenario("llama3-8b", **asked))
    assert refuses(made.scenario.run)(made.plan.parallel, made.plan.workload.recompute) == ()


def test_every_change_that_is_offered_is_executed():
    made = with_ways(planned(scenario("mixtral-8x7b")))
    assert not made.plan.estimate.fits and made.changes
    assert not {each.name for each in made.changes} & {"8-bit optimizer", "paged optimizer"}
