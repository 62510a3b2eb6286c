"""What a plan's check refuses beside unknown devices: tables that this machine cannot hold."""

from __future__ import annotations

from fixtures.planned_recipe import planned_recipe
from trainwright.core.errors import MachineError
from trainwright.stages.plan.check import problems


def test_a_context_that_memory_cannot_hold_is_known_before_anything_runs(tmp_path) -> None:
    (problem,) = problems(planned_recipe(tmp_path, "model.context_tokens=1e12"), None)
    assert isinstance(problem, MachineError)
    # 10^12 positions, heads of 64: angles and their cosines in fp64, both tables in fp32.
    assert (problem.where, problem.seen) == ("model.context_tokens", f"{10**12 * 32 * (8 + 8 + 4 + 4) / 2**40:.4g} TiB")
    assert not list(problems(planned_recipe(tmp_path), None))


def test_learned_positions_are_parameters_which_the_plan_counts(tmp_path) -> None:
    assert not list(problems(planned_recipe(tmp_path, "model.family=gpt2", "model.context_tokens=1e12"), None))
