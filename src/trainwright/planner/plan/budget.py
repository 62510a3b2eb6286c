"""A model of a given size, and what a budget of dollars comes to in FLOPs on a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.models import numbers_model
from trainwright.planner.cost.scaling_laws import FLOPS_PER_PARAMETER_TOKEN, compute_optimal, training_flops
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.plan.cluster import Planned, planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.ways import with_memory_enough
from trainwright.spec.model import ModelSpec

ASPECT = 128
"""Width over layers, as Llama has it; near the best of a broad optimum (Kaplan et al., 2020, section 3.1)."""
VOCABULARY = 32_000
TOLERANCE = 0.05
MOST_PARAMETERS = 1e17
"""Ten thousand layers, the most that a model may have, have twice as many with a usual ratio of width to depth."""
ROUNDS, NEAR = 8, 0.005
"""Of the fixed point between a budget's model and how fast that model trains: how many at most, and when to stop."""
Asking = Callable[[ModelSpec, int], Question]
"""The question of a model on so many tokens."""


def model_of_size(parameters: float) -> ModelSpec:
    """Returns a decoder as Llama is built, of about so many parameters, with a usual ratio of width to depth.

    Raises:
        RecipeError: no such model, as below a few million, where the vocabulary alone is larger.
    """
    if parameters > MOST_PARAMETERS:
        raise RecipeError("no ordinary model has that size", seen=f"{parameters:.3g} parameters")
    # A layer of width 128 L has 12 (128 L)^2 parameters.
    width = (parameters * ASPECT / 12) ** (1 / 3)
    unit = 64 if width < 1024 else 256
    widest = round(width / unit) + 1
    models = [_of_width(unit * each, parameters) for each in range(max(1, widest - 12), widest + 1)]
    near = [model for model in models if abs(total_parameters(model) / parameters - 1) < TOLERANCE]
    if not near:
        raise RecipeError("no ordinary model has that size", seen=f"{parameters:.3g} parameters")
    return min(near, key=lambda model: abs(math.log(model.width / model.layers / ASPECT)))


def _of_width(width: int, parameters: float) -> ModelSpec:
    head = 128 if width % 256 == 0 else 64
    layers = max(1, round((parameters - 2 * VOCABULARY * width) / (12 * width**2)))
    return numbers_model(f"layers={layers},width={width},heads={width // head},vocabulary={VOCABULARY}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Afforded:
    """A budget spent: FLOPs of training at the speed that the best model for them reaches, and its plan."""

    flops: float
    best: Planned


def afforded(usd: float, ask: Asking) -> Afforded:
    """Returns the compute-optimal run that costs ``usd`` on the cluster that ``ask`` names.

    Raises:
        RecipeError: no price is known, or the best model for the budget cannot be trained there.
    """
    flops = 1e18 * usd
    for number in range(ROUNDS):
        # Models come in steps: between two of them the search would swing. What a step leaves goes into tokens.
        if number < ROUNDS // 2:
            model = model_of_size(float(compute_optimal(flops).parameters))
        parameters = total_parameters(model)
        tokens = flops / FLOPS_PER_PARAMETER_TOKEN / parameters
        best = planned(scenario_of(ask(model, max(1, round(tokens)))))
        told = best if best.plan.estimate.fits else with_memory_enough(best.scenario)
        cost = told.plan.estimate.usd
        if cost is None:
            fix = "give dollars for a device and hour: `price` 2.50"
            raise RecipeError("no price is known", where=best.plan.cluster.device.name, fix=fix)
        if cost.mid <= 0:
            raise RecipeError("a budget has no end where an hour costs nothing", field="price", seen=cost.mid)
        if abs(usd / cost.mid - 1) < NEAR:
            break
        flops *= usd / cost.mid
    return Afforded(flops=float(training_flops(parameters, tokens)), best=best)
