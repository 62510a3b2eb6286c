"""A plan goes to its file and comes back equal; a dataset's facts are in ``tests/unit/pipeline/test_facts.py``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright.artifact.reading import PLAN, read_plan
from trainwright.core.errors import DataError
from trainwright.core.records import to_json
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_plan


@pytest.fixture
def path(tmp_path) -> Path:
    recipe = Recipe.model_validate(
        {"name": "x", "model": {"layers": 1, "width": 8, "heads": 1}, "data": {"sources": [{"kind": "python-stdlib"}]}}
    )
    return make_plan(tmp_path, recipe, vocabulary=300).file(PLAN)


def test_round_trip(path) -> None:
    plan = read_plan(path)
    assert to_json(plan) == json.loads(path.read_text())
    path.write_text(json.dumps(to_json(plan)))
    assert read_plan(path) == plan


def test_what_is_missing_is_named(path) -> None:
    record = json.loads(path.read_text())
    del record["workload"]["steps"]
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match=r"plan\.json: not a valid Plan .seen workload\.steps"):
        read_plan(path)


def test_a_file_that_is_gone_or_cut_is_named(path) -> None:
    path.write_text(path.read_text()[:50])
    with pytest.raises(DataError, match=r"plan\.json: cannot read JSON"):
        read_plan(path)
    path.unlink()
    with pytest.raises(DataError, match=r"plan\.json: no such file"):
        read_plan(path)
