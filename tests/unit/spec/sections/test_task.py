"""Labels stand with tasks that have classes, and the sources bring them: both are known before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from fixtures.plugged_task import TOPICS
from fixtures.task_recipe import task_recipe
from trainwright.core.config.load import load
from trainwright.core.errors import RecipeError, RecipeErrors
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.task import TaskSection

LABELLED = {"kind": "jsonl", "paths": ["x.jsonl"], "label_key": "label"}


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"labels": ["a", "b"]}, "labels go with a task that has classes"),
        ({"name": "classify"}, "at least 2 classes"),
        ({"name": "classify-many", "labels": ["a"]}, "at least 2 classes"),
        ({"name": "regress", "labels": ["a", "b"]}, "labels go with a task that has classes"),
        ({"name": "reward", "labels": ["a", "b"]}, "labels go with a task that has classes"),
        ({"name": "classify", "labels": ["a"]}, "at least 2 classes"),
        ({"name": "classify", "labels": ["a", "a"]}, "must differ"),
        ({"name": "classify", "labels": ["a", ""]}, "none may be empty"),
        (
            {"name": "clasify", "labels": ["a", "b"]},
            "'classify', 'classify-many', 'regress', 'classify-tokens', 'chat', 'classify-images', 'preference'",
        ),
    ],
)
def test_what_cannot_be_learnt_is_refused(task, message):
    with pytest.raises(ValidationError, match=message):
        TaskSection.model_validate(task)


def test_a_plug_in_s_labels_follow_from_what_it_makes():
    assert TaskSection(name="fixtures.plugged_task:TOPICS", labels=("a", "b")).kind is TOPICS
    with pytest.raises(ValidationError, match=r"at least 2 classes for name: fixtures\.plugged_task:TOPICS"):
        TaskSection(name="fixtures.plugged_task:TOPICS")
    with pytest.raises(ValidationError, match="labels go with a task that has classes"):
        TaskSection(name="fixtures.plugged_task:BROKEN", labels=("a", "b"))


def test_a_plug_in_says_what_its_documents_need_and_how_they_are_read():
    topics = {"name": "fixtures.plugged_task:TOPICS", "labels": ["a", "b"]}
    with pytest.raises(ValidationError, match="has no labels, which the task fixtures.plugged_task:TOPICS needs"):
        task_recipe(topics, {"kind": "python-stdlib"})
    read_whole = task_recipe(topics, LABELLED)
    assert read_whole.epoch_tokens(tokens=5000, documents=7) == 7 * read_whole.train.sequence_tokens
    unlabelled = task_recipe(topics | {"name": "fixtures.plugged_task:SHAPES"}, {"kind": "python-stdlib"})
    assert unlabelled.epoch_tokens(tokens=5000, documents=7) == 3 * 1024
    assert unlabelled.model_spec(vocabulary=300).classes == 2


def test_a_plan_of_a_plug_in_brings_no_torch():
    program = (
        "import sys; from trainwright.spec.sections.task import TaskSection;"
        "TaskSection(name='fixtures.plugged_task:TOPICS', labels=('a', 'b')); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])


def test_the_head_follows_the_labels():
    plain = task_recipe({}, {"kind": "python-stdlib"}).model_spec(vocabulary=300)
    assert (plain.classes, plain.makes_logits) == (0, True)
    spec = task_recipe({"name": "classify", "labels": ["a", "b", "c"]}, LABELLED).model_spec(vocabulary=300)
    assert (spec.classes, spec.makes_logits) == (3, False)


def test_an_epoch_is_every_window_or_document_once():
    assert task_recipe({}, {"kind": "python-stdlib"}).epoch_tokens(tokens=5000, documents=7) == 3 * 1024
    with_labels = task_recipe({"name": "classify", "labels": ["a", "b"]}, LABELLED)
    assert with_labels.epoch_tokens(tokens=5000, documents=7) == 7 * with_labels.train.sequence_tokens


def test_a_missing_label_key_is_named_with_its_line(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "name: t\nmodel: {layers: 1, width: 16, heads: 2}\ntask: {name: classify, labels: [a, b]}\ndata:\n  sources:\n"
        "    - {kind: jsonl, paths: [x.jsonl], label_key: label}\n    - {kind: jsonl, paths: [y.jsonl]}\n"
    )
    with pytest.raises((RecipeError, RecipeErrors), match=r"recipe\.yaml:7.*sources\.1 has no labels"):
        load(Recipe, files=[path], environ={})
    path.write_text(path.read_text().replace(", label_key: label", ""))
    with pytest.raises((RecipeError, RecipeErrors), match=r"recipe\.yaml:6.*data\.sources\.0 has no labels"):
        load(Recipe, files=[path], environ={})


def test_all_labels_that_a_recipe_lacks_are_named_at_once() -> None:
    section = TaskSection.model_validate({"name": "classify", "labels": ["a", "b"]})
    section.check_labels(["b", "a", "b"])
    with pytest.raises(RecipeError) as caught:
        section.check_labels(["x", "b", "w"])
    assert (caught.value.where, caught.value.seen, caught.value.expected) == (
        "task.labels",
        "'w', 'x'",
        "among 'a', 'b'",
    )
    with pytest.raises(RecipeError, match=r"'018', '019' and 5 more, expected"):
        section.check_labels(f"{number:03}" for number in range(25))
