import pytest

from fixtures.formulas import evaluated
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.planner.explain import run as module
from trainwright.planner.explain.registry import explain
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of


@pytest.mark.parametrize("name", [name for name in module.RUN if name != "run.usd"])
def test_every_formula_comes_to_the_forecasts_value(made, name):
    explained = explain(made, name)
    assert evaluated(explained) == pytest.approx(explained.value, rel=1e-6, abs=1e-12)
    assert explained.about
    assert all(term.meaning for term in explained.terms)


def test_dollars_are_explained_where_a_price_is_known(made):
    if made.scenario.price is None:
        with pytest.raises(RecipeError, match="no price is known"):
            explain(made, "run.usd")
    else:
        assert evaluated(explain(made, "run.usd")) == pytest.approx(made.plan.estimate.usd.mid)


def test_the_steps_and_what_is_beside_them_are_the_whole_run():
    long_run = planned(scenario_of(Question(model=model("llama3-70b"), tokens=15 * 10**12, on="64x8xh100-sxm")))
    parts = module.beside_steps(long_run.run)
    assert [seconds for _, seconds in parts] == sorted((seconds for _, seconds in parts), reverse=True)
    whole = float(long_run.run.parts.steps_s[0]) + sum(seconds for _, seconds in parts)
    assert whole == pytest.approx(long_run.plan.estimate.seconds.mid, rel=1e-9)
    assert parts[0][0].startswith("overhead of long runs") and "writing checkpoints" in dict(parts)
