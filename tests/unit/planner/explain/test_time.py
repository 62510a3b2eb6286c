import math

import pytest

from fixtures.formulas import evaluated
from trainwright.hardware.catalogue.models import model
from trainwright.planner.explain.registry import explain
from trainwright.planner.explain.time import TIME
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of


@pytest.mark.parametrize("name", TIME)
def test_every_formula_comes_to_the_forecasts_value(made, name):
    explained = explain(made, name)
    assert evaluated(explained) == pytest.approx(explained.value, rel=1e-6, abs=1e-12)
    assert explained.about
    assert all(term.meaning for term in explained.terms)


def test_what_is_sent_to_experts_is_detailed(both_ways):
    details = {term.meaning: term.value for term in explain(both_ways, "time.communicate").details}
    # 32 ranks are four nodes; the two whole groups on each are picked, or one of them, or none (section 2.1.2).
    assert details["copies of a token over the network"] == pytest.approx(3 * (1 - 3 / 14), rel=0.2)
    assert details["ranks of 32 that a token goes to, of 4 of 8 groups at most"] < 8
    assert details["of a copy on its way to its experts"] == 7168 * (1 + 4 / 128)
    assert details["of a copy on its way back"] == 2 * 7168
    hidden = "sent to experts and stages while the other direction's micro batch is computed"
    waited = {term.meaning: term.value for term in explain(both_ways, "time.communicate").terms}
    assert details[hidden] > 20 * waited["expert parallelism"]
    dense = planned(scenario_of(Question(model=model("llama3-8b"), on="8xh100-sxm")))
    assert explain(dense, "time.communicate").details == ()


def test_the_share_that_products_reach_is_the_product_of_the_numbers_named():
    """On an A100 of the PCIe kind: of its generation, of the format, and measured on the device (252.9 of 312)."""
    some = planned(scenario_of(Question(model=model("llama3-8b"), on="8xa100-pcie-40gb")))
    explained = explain(some, "time.products")
    named = {term.meaning.partition(",")[0]: term.value for term in explained.details}
    assert named["matmul"] == pytest.approx(252.9 / 312 / 0.87)
    assert set(named) == {"products.ampere", "precisions.bf16", "matmul"}
    reached = next(term.value for term in explained.terms if term.symbol == "r")
    assert math.prod(named.values()) == pytest.approx(reached)
