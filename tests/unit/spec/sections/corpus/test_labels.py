"""Keys of labels: what goes with what."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.corpus.sources import CsvSource, JsonlSource, ParquetSource
from trainwright.spec.sections.data import DataSection


def test_a_source_has_labels_where_a_key_names_them() -> None:
    assert not CsvSource(kind="csv", paths=("x",)).labelled
    assert ParquetSource(kind="parquet", paths=("x",), label_column="y", label_kind="names").labelled
    assert JsonlSource(kind="jsonl", paths=("x",), label_key="y").label_kind == "name"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_kind_of_label_goes_with_a_label(kind) -> None:
    with pytest.raises(ValidationError, match="label_kind: names goes with a label"):
        DataSection.model_validate({"sources": [{"kind": kind, "paths": ["x"], "label_kind": "names"}]})


def test_all_sources_have_labels_of_one_kind() -> None:
    one = {"kind": "jsonl", "paths": ["x"], "label_key": "y"}
    assert DataSection.model_validate({"sources": [one | {"label_kind": "names"}] * 2}).label_kind == "names"
    with pytest.raises(ValidationError, match="sources.1 has label_kind: names, and sources.0 label_kind: name"):
        DataSection.model_validate({"sources": [one, one | {"label_kind": "names"}]})


@pytest.mark.parametrize(
    ("task", "kind", "told"),
    [
        ("classify-many", "name", "have label_kind: name, and .* needs label_kind: names"),
        ("classify", "names", "have label_kind: names, and the task classify needs label_kind: name"),
        ("regress", "name", "have label_kind: name, and the task regress needs label_kind: number"),
        ("classify", "number", "have label_kind: number, and the task classify needs label_kind: name"),
        ("classify-many", None, "data.sources.0 has no labels, which the task classify-many needs"),
    ],
)
def test_a_task_needs_its_kind_of_label(task, kind, told) -> None:
    source = {"kind": "jsonl", "paths": ["x"]} | ({} if kind is None else {"label_key": "y", "label_kind": kind})
    named = {"name": task} if task == "regress" else {"name": task, "labels": ["a", "b"]}
    model = {"layers": 1, "width": 16, "heads": 2}
    with pytest.raises(ValidationError, match=told):
        Recipe.model_validate(
            {
                "name": "t",
                "model": model,
                "task": named,
                "data": {"sources": [source]},
            }
        )
