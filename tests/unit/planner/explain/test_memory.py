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
    table = made.choice.forecast.memory
    room = table.resident_bytes(table.device_bytes, made.plan.cluster.device)[0]
    assert sum(term.value for term in total.terms) == pytest.approx(table.device_bytes[0] + room)
    paged = {term.symbol: term.value for term in total.terms}.get("paged", 0.0)
    for term in total.terms:
        if f"memory.{term.symbol}" in MEMORY:
            shown = term.value + (paged if term.symbol == "optimizer" else 0.0)
            assert explain(made, f"memory.{term.symbol}").value == pytest.approx(shown)
