"""A plan goes to JSON and comes back equal."""

from __future__ import annotations

import json

import pytest

from trainwright.core.errors import DataError
from trainwright.core.records import from_json, to_json
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_plan


@pytest.fixture
def text(tmp_path) -> str:
    recipe = Recipe.model_validate(
        {"name": "x", "model": {"layers": 1, "width": 8, "heads": 1}, "data": {"sources": [{"kind": "python-stdlib"}]}}
    )
    return make_plan(tmp_path, recipe, vocabulary=300).file("plan.json").read_text()


def test_round_trip(text) -> None:
    plan = from_json(Plan, json.loads(text), where="plan.json")
    assert to_json(plan) == json.loads(text)
    assert from_json(Plan, to_json(plan), where="again") == plan


def test_what_is_missing_is_named(text) -> None:
    record = json.loads(text)
    del record["workload"]["steps"]
    with pytest.raises(DataError, match=r"plan\.json: not a valid Plan .seen workload\.steps"):
        from_json(Plan, record, where="plan.json")
