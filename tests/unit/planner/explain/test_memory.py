import pytest

from fixtures.formulas import evaluated
from trainwright.planner.explain.memory import MEMORY
from trainwright.planner.explain.registry import explain


@pytest.mark.parametrize("name", MEMORY)
def test_every_formula_comes_to_the_forecasts_value(made, name):
    explained = explain(made, name)
    assert evaluated(explained) == pytest.approx(explained.value, rel=1e-6, abs=1e-12)
    assert explained.about
    assert all(term.meaning for term in explained.terms)


def test_the_parts_of_the_peak_sum_to_what_the_device_shows(made):
    total = explain(made, "memory.total")
    assert sum(term.value for term in total.terms) == pytest.approx(made.choice.forecast.memory.device_bytes[0])
    for term in total.terms:
        if f"memory.{term.symbol}" in MEMORY:
            assert explain(made, f"memory.{term.symbol}").value == pytest.approx(term.value)
