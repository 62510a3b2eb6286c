"""A training that its dataset cannot serve is refused as soon as that is sure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.artifact.store import Artifact
from trainwright.core.errors import TrainwrightError
from trainwright.pipeline.length_and_labels import dataset_problems
from trainwright.pipeline.steps import steps
from trainwright.testing.artifacts import make_dataset


def problems(
    folder: Path, *overrides: str, done: Mapping[str, Artifact] | None = None, name: str = "train"
) -> list[TrainwrightError]:
    """Of the training of the planned recipe, whose updates are of 1,024 tokens, or of its plan."""
    (chosen,) = (step for step in steps(planned_recipe(folder, *overrides)) if step.name == name)
    return list(dataset_problems(chosen, done or {}))


@pytest.mark.parametrize("duration", ["1 steps", "513 tok", "0.001 tok/param", "3 epochs", "0.5 epochs"])
def test_what_can_be_trained(tmp_path, duration) -> None:
    assert problems(tmp_path, f"train.duration={duration}") == []


@pytest.mark.parametrize("duration", ["0 steps", "511 tok", "1e-6 tok/param", "0 epochs"])
@pytest.mark.parametrize("name", ["plan", "train"])
def test_what_is_shorter_than_one_update(tmp_path, duration, name) -> None:
    (problem,) = problems(tmp_path, f"train.duration={duration}", name=name)
    assert problem.where == "train.duration" and problem.seen is not None and duration in problem.seen


@pytest.mark.parametrize(("duration", "refused"), [("0.002 epochs", True), ("0.03 epochs", False), ("1 epochs", False)])
def test_epochs_that_no_estimate_makes_an_update_are_refused(tmp_path, duration, refused) -> None:
    # 140,000 bytes to train on: about 78,000 tokens of an epoch, 156 of them in 0.002 epochs.
    (tmp_path / "corpus.txt").write_text("four words of text. " * 10_000)
    found = problems(
        tmp_path, f"data.sources=[{{kind: files, paths: [{tmp_path}/corpus.txt]}}]", f"train.duration={duration}"
    )
    assert [problem.seen for problem in found] == ["0.002 epochs, which is about 155 tokens"] * refused


def test_epochs_of_a_corpus_that_is_elsewhere_are_not_judged(tmp_path) -> None:
    for path in ("https://example.org/corpus.jsonl", "/nowhere/corpus.jsonl"):
        corpus = f"data.sources=[{{kind: jsonl, paths: ['{path}']}}]"
        assert problems(tmp_path, corpus, "train.duration=1e-9 epochs") == []


@pytest.mark.parametrize(
    ("duration", "start", "refused"),
    [
        ("8 steps", "8 steps", True),
        ("8 steps", "8192 tok", True),
        ("8 steps", "7000 tok", False),
        ("2 tok/param", "2 tok/param", True),
        ("2 tok/param", "1 tok/param", False),
        ("2 tok/param", "1M steps", False),  # whose vocabulary the dataset may have
        ("3 epochs", "3 epochs", True),
        ("0 steps", "1 steps", False),  # which is told of the run
    ],
)
def test_an_average_that_begins_after_the_run_is_refused_where_that_is_sure(tmp_path, duration, start, refused) -> None:
    found = problems(tmp_path, f"train.duration={duration}", f"train.ema={{start: {start}}}")
    ours = [each for each in found if each.where == "train.ema.start"]
    assert len(ours) == refused
    assert all("the run ends before the average of its weights begins" in each.what for each in ours)


LABELS = "task={name: classify, labels: [ham, other]}"


def test_labels_that_the_recipe_lacks_are_named_at_the_head_of_the_corpus_and_in_the_dataset(tmp_path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    keys = (LABELS, f"data.sources=[{{kind: jsonl, paths: [{corpus}], label_key: label}}]")
    rows = [{"text": f"text {number}", "label": label} for number, label in enumerate(("ham", "spam", "eggs", "spam"))]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows[:1]))
    assert problems(tmp_path, *keys) == []
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (problem,) = problems(tmp_path, *keys)
    assert (problem.where, problem.seen, problem.exit_code) == ("task.labels", "'eggs', 'spam'", 2)
    assert problems(tmp_path, *keys, name="plan") == [], "a training may be on another dataset"
    texts = ["some words of text"] * 40
    labels = {"train": ["ham", "new"] * 20, "validation": ["newer"]}
    done = {"data": make_dataset(tmp_path, {"train": texts, "validation": texts[:1]}, labels=labels)}
    (problem,) = problems(tmp_path, *keys, done=done)
    assert problem.seen == "'new', 'newer'"


def test_epochs_of_a_dataset_that_is_there_are_counted(tmp_path) -> None:
    texts = ["some words of text"] * 400
    done = {"data": make_dataset(tmp_path, {"train": texts, "validation": texts[:1]})}
    tokens = json.loads((done["data"].path / "dataset.json").read_text())["splits"]["train"]["tokens"]
    epoch = (tokens // 128 - 1) * 128
    for share, refused in ((510 / epoch, True), (515 / epoch, False)):  # 512 tokens round to no update of 1,024
        found = problems(tmp_path, f"train.duration={share:.6f} epochs", done=done)
        assert [problem.what for problem in found] == ["the run is shorter than one update"] * refused
