"""What the server's check refuses: a cache that this machine cannot hold."""

from __future__ import annotations

import pytest

from trainwright.core.errors import MachineError
from trainwright.hardware.machine import room
from trainwright.spec.recipe import Recipe
from trainwright.stages.serve import check

NEEDED = 2 * 3 * 96 * 32 * 4
"""Bytes of a request: keys and values of 3 layers, 96 positions, a width of 32, in fp32."""


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch) -> None:
    monkeypatch.setattr(check, "gpus", lambda: ())


def with_places(recipe, places, **section) -> Recipe:
    return Recipe.model_validate(
        recipe.model_dump() | {"serve": {"max_concurrent": places, "demo": {"prompt": "a"}, **section}}
    )


def test_a_cache_that_memory_cannot_hold_is_known_before_anything_runs(recipe, monkeypatch) -> None:
    monkeypatch.setattr(room, "memory", lambda: (5 * NEEDED, 0))
    assert not list(check.problems(with_places(recipe, 5), None))
    (problem,) = check.problems(with_places(recipe, 6), None)
    assert isinstance(problem, MachineError)
    assert (problem.where, problem.fix) == ("serve.max_concurrent", "set it to 5")
    monkeypatch.setattr(room, "memory", lambda: (NEEDED - 1, 0))
    (problem,) = check.problems(with_places(recipe, 1), None)
    assert problem.fix == "take a model with a shorter context"


def test_a_run_that_serves_nothing_needs_no_cache(recipe, monkeypatch) -> None:
    monkeypatch.setattr(room, "memory", lambda: (1, 0))
    assert not list(check.problems(with_places(recipe, 8, demo=None), None))


def test_another_engine_has_its_own_cache(recipe, monkeypatch) -> None:
    monkeypatch.setattr(room, "memory", lambda: (1, 0))
    other = with_places(recipe, 1, engine="fixtures.parrot_engine:open_engine")
    assert not list(check.memory_problems(other))
