"""Labels stand with tasks that have classes, and the sources bring them: both are known before anything runs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.core.config.load import load
from trainwright.core.errors import RecipeError, RecipeErrors
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.task import TaskSection

LABELLED = {"kind": "jsonl", "paths": ["x.jsonl"], "label_key": "label"}


def recipe(task, *sources) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "t",
            "model": {"layers": 1, "width": 16, "heads": 2},
            "task": task,
            "data": {"sources": list(sources)},
        }
    )


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"labels": ["a", "b"]}, "labels go with a task that has classes"),
        ({"name": "classify"}, "at least 2 classes"),
        ({"name": "classify", "labels": ["a"]}, "at least 2 classes"),
        ({"name": "classify", "labels": ["a", "a"]}, "must differ"),
        ({"name": "classify", "labels": ["a", ""]}, "none may be empty"),
        ({"name": "clasify", "labels": ["a", "b"]}, "'next-token', 'classify' or 'package.module:name'"),
    ],
)
def test_what_cannot_be_learnt_is_refused(task, message):
    with pytest.raises(ValidationError, match=message):
        TaskSection.model_validate(task)


def test_a_plug_in_may_have_labels_or_none():
    assert TaskSection(name="my.package:task").labels == ()
    assert TaskSection(name="my.package:task", labels=("a", "b")).labels == ("a", "b")


def test_the_head_follows_the_labels():
    plain = recipe({}, {"kind": "python-stdlib"}).model_spec(vocabulary=300)
    assert (plain.classes, plain.makes_logits) == (0, True)
    spec = recipe({"name": "classify", "labels": ["a", "b", "c"]}, LABELLED).model_spec(vocabulary=300)
    assert (spec.classes, spec.makes_logits) == (3, False)


def test_an_epoch_is_every_document_once():
    assert recipe({}, {"kind": "python-stdlib"}).epoch_tokens(tokens=5000, documents=7) == 5000
    with_labels = recipe({"name": "classify", "labels": ["a", "b"]}, LABELLED)
    assert with_labels.epoch_tokens(tokens=5000, documents=7) == 7 * with_labels.train.sequence_tokens


def test_a_missing_label_key_is_named_with_its_line(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "name: t\nmodel: {layers: 1, width: 16, heads: 2}\ntask: {name: classify, labels: [a, b]}\ndata:\n  sources:\n"
        "    - {kind: jsonl, paths: [x.jsonl], label_key: label}\n    - {kind: jsonl, paths: [y.jsonl]}\n"
    )
    with pytest.raises((RecipeError, RecipeErrors), match=r"recipe\.yaml:7.*sources\.1 has no label_key"):
        load(Recipe, files=[path], environ={})
    path.write_text(path.read_text().replace(", label_key: label", ""))
    with pytest.raises((RecipeError, RecipeErrors), match=r"recipe\.yaml:6.*data\.sources\.0 has no label_key"):
        load(Recipe, files=[path], environ={})
