"""What a stage is given: inputs by role, of the kind that it asks for, and child runs where there is a pipeline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context, StageResult
from trainwright.core.errors import DataError
from trainwright.testing.artifacts import make_artifact


def context(folder: Path, **inputs) -> Context:
    recipe = planned_recipe(folder)
    return Context(recipe=recipe, inputs=inputs, out=folder, root=folder, events=Events(None, run="t"))


def test_execution_starts_empty_and_is_not_shared() -> None:
    first, second = StageResult(summary={"tokens": 1}), StageResult(summary={"tokens": 1})
    assert first.execution == {}
    assert first.execution is not second.execution


def test_an_input_is_found_by_its_role(tmp_path) -> None:
    dataset, model = make_artifact(tmp_path, "data", {"a": b"1"}), make_artifact(tmp_path, "train", {"b": b"2"})
    here = context(tmp_path, dataset=dataset, base=model)
    assert here.input("dataset") is dataset
    assert here.input("base", kind="checkpoint") is model


def test_an_artefact_of_another_kind_is_named_with_its_place(tmp_path) -> None:
    here = context(tmp_path, dataset=make_artifact(tmp_path, "export", {"a": b"1"}))
    with pytest.raises(DataError, match=rf"{re.escape(str(tmp_path))}/export-.* \(seen bundle, expected a dataset\)"):
        here.input("dataset")


def test_a_role_that_nothing_has_is_named(tmp_path) -> None:
    with pytest.raises(DataError, match=r"needs an artefact as its dataset \(seen none\)"):
        context(tmp_path).input("dataset")


def test_without_a_pipeline_there_are_no_child_runs(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="no pipeline"):
        context(tmp_path).child(planned_recipe(tmp_path))
