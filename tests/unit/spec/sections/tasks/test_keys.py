"""The keys of tasks that have some of their own, and when they are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from fixtures.task_recipe import task_recipe
from trainwright.spec.recipe import Recipe

PAIRS = {"kind": "preferences", "paths": ["x.jsonl"]}


def test_preferences_have_keys_of_their_own():
    plain = task_recipe({"name": "preference"}, PAIRS).task
    assert plain.model_dump() == {"name": "preference", "labels": (), "loss": "dpo", "beta": 0.1, "label_smoothing": 0}
    assert task_recipe({"name": "preference", "loss": "orpo", "beta": 0.2}, PAIRS).identity("task")["loss"] == "orpo"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"loss": "ipo"}, "'dpo' or 'orpo'"),
        ({"beta": 0}, "greater than 0"),
        ({"label_smoothing": 0.5}, "less than 0.5"),
        ({"loss": "orpo", "label_smoothing": 0.1}, "label_smoothing goes with loss: dpo, seen loss: orpo"),
    ],
)
def test_preferences_that_cannot_be_learnt_are_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        task_recipe({"name": "preference"} | keys, PAIRS)


def test_networks_and_sources_that_preferences_do_not_have_are_refused():
    with pytest.raises(ValidationError, match="the task preference needs kind: preferences"):
        task_recipe({"name": "preference"}, {"kind": "python-stdlib"})
    with pytest.raises(ValidationError, match="needs a network of another kind: decoder; bert is: encoder"):
        Recipe.model_validate(
            {
                "name": "t",
                "model": {"family": "bert", "layers": 1, "width": 16, "heads": 2},
                "task": {"name": "preference"},
                "data": {"sources": [PAIRS]},
            }
        )


def test_distillation_has_keys_of_its_own():
    plain = task_recipe({"name": "distill", "teacher": "models/large"}, {"kind": "python-stdlib"}).task
    keys = {"teacher": "models/large", "temperature": 2.0, "alpha": 0.5}
    assert plain.model_dump() == {"name": "distill", "labels": ()} | keys


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "teacher"),
        ({"teacher": ""}, "at least 1 character"),
        ({"teacher": "x", "temperature": 0}, "greater than 0"),
        ({"teacher": "x", "alpha": 1.5}, "less than or equal to 1"),
        ({"teacher": "x", "beta": 0.1}, "beta"),
    ],
)
def test_distillations_that_cannot_be_are_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        task_recipe({"name": "distill"} | keys, {"kind": "python-stdlib"})


def test_the_keys_are_imported_where_a_recipe_names_such_a_task():
    program = """
import sys
from trainwright.spec.recipe import Recipe
keys, rest = "trainwright.spec.sections.tasks.keys", {"name": "t", "model": {"layers": 1, "width": 16, "heads": 2}}
Recipe.model_validate(rest | {"data": {"sources": [{"kind": "python-stdlib"}]}})
assert keys not in sys.modules
Recipe.model_validate(rest | {"task": {"name": "preference"}, "data": {"sources": [PAIRS]}})
assert keys in sys.modules
"""
    subprocess.run([sys.executable, "-c", f"PAIRS = {PAIRS}\n{program}"], check=True)
