"""Formulas with numbers put in: what is printed where a plan is asked to explain ``memory.activations``.

An explanation's terms are computed by the functions that the forecast uses, and its formula comes to the forecast's own
value, which the tests hold it to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import unknown
from trainwright.planner.explain.formula import Explanation
from trainwright.planner.explain.memory import MEMORY
from trainwright.planner.explain.run import RUN
from trainwright.planner.explain.time import TIME
from trainwright.planner.plan.cluster import Planned

EXPLAINERS: Mapping[str, Callable[[Planned], Explanation]] = {**MEMORY, **TIME, **RUN}
"""Everything that can be explained, by name."""


def explain(planned: Planned, name: str) -> Explanation:
    """Returns the formula behind a number of the plan.

    Raises:
        RecipeError: nothing of that name; names near ones.
    """
    if name not in EXPLAINERS:
        problem = unknown(name, EXPLAINERS)
        parts = [each for each in EXPLAINERS if name and each.startswith(f"{name.lower()}.")]
        if parts:
            problem["fix"] = f"did you mean {parts[0]!r}?"
        raise RecipeError("nothing to explain by that name", field="explain", **problem)
    return EXPLAINERS[name](planned)
