import pytest

from fixtures.formulas import evaluated
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.planner.explain.memory import MEMORY
from trainwright.planner.explain.registry import EXPLAINERS, explain
from trainwright.planner.explain.run import RUN
from trainwright.planner.explain.time import TIME
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of


def test_it_has_the_formulas_of_memory_time_and_run_and_no_name_twice():
    assert EXPLAINERS.keys() == MEMORY.keys() | TIME.keys() | RUN.keys()
    assert len(EXPLAINERS) == len(MEMORY) + len(TIME) + len(RUN)


def test_of_a_convolutional_network_time_is_explained_and_memory_in_total():
    made = planned(scenario_of(Question(model=model("resnet-50"), on="8xa100-80gb", price=1.0)))
    for name in (*TIME, *RUN, "memory.total"):
        explained = explain(made, name)
        assert evaluated(explained) == pytest.approx(explained.value, rel=1e-6, abs=1e-12), name
    with pytest.raises(RecipeError, match="for transformers"):
        explain(made, "memory.weights")


def test_unknown_names_are_refused_with_near_ones(both_ways):
    with pytest.raises(RecipeError, match=r"did you mean .*memory\.activations"):
        explain(both_ways, "memory.activation")


def test_a_group_of_names_leads_to_its_first():
    with pytest.raises(RecipeError, match=r"did you mean 'memory\.total'"):
        explain(planned(scenario_of(Question(model=model("gpt2"), on="8xh100-sxm"))), "memory")
