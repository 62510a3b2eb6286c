import pytest

from trainwright.core.errors import RecipeError
from trainwright.planner.cost.scaling_laws import compute_optimal
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.plan.budget import afforded, model_of_size
from trainwright.planner.plan.question import Question


@pytest.mark.parametrize("parameters", [1e7, 1.2e8, 1e9, 7e9, 7e10, 1e12])
def test_models_have_their_size_and_can_be_built(parameters):
    model = model_of_size(parameters)
    assert total_parameters(model) == pytest.approx(parameters, rel=0.05)
    assert model.problems() == ()
    assert model.heads * model.head_size == model.width


def test_no_model_is_smaller_than_its_vocabulary():
    with pytest.raises(RecipeError, match="no ordinary model has that size"):
        model_of_size(1e5)


def test_a_budget_is_spent_on_the_best_model_for_its_flops():
    bought = afforded(5000.0, lambda model, tokens: Question(model=model, on="8xh100-sxm", tokens=tokens, price=2.0))
    assert bought.best.plan.estimate.usd.mid == pytest.approx(5000, rel=0.01)
    best = compute_optimal(bought.flops)
    run = bought.best.plan
    parameters = sum(run.parameters.values())
    assert parameters == pytest.approx(float(best.parameters), rel=0.05)
    assert 6 * parameters * run.workload.total_tokens == pytest.approx(bought.flops, rel=0.001)


def test_a_budget_needs_a_price():
    with pytest.raises(RecipeError, match="no price is known"):
        afforded(5000.0, lambda model, tokens: Question(model=model, on="8xh800-sxm", tokens=tokens))


def test_a_budget_for_devices_that_cost_nothing_has_no_end():
    with pytest.raises(RecipeError, match="price: a budget has no end where an hour costs nothing"):
        afforded(5000.0, lambda model, tokens: Question(model=model, on="8xh100-sxm", tokens=tokens, price=0.0))


def test_a_budget_for_devices_that_are_too_small_is_spent_at_the_pace_that_they_would_have_with_memory_enough():
    def bought(on):
        return afforded(1e6, lambda model, tokens: Question(model=model, on=on, tokens=tokens, price=0.4)).best.plan

    small = bought("8xrtx-4090")
    assert not small.estimate.fits
    assert small.estimate.usd.mid > 2e6, "with the layout that needs least memory it would be dearer"
