import json

import pytest

from trainwright.artifact.workspace import Workspace
from trainwright.core.errors import DataError
from trainwright.pipeline import facts
from trainwright.pipeline.facts import known_facts
from trainwright.pipeline.graph import STAGES
from trainwright.pipeline.runner import address
from trainwright.planner.plan.workload import bytes_per_token, estimated_facts
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_artifact

RECIPE = {"name": "epochs", "model": {"layers": 2, "width": 64, "heads": 2, "context_tokens": 1024}}
SPLITS = {"train": {"tokens": 9000, "documents": 12}, "validation": {"tokens": 500, "documents": 2}}


def recipe(corpus, duration="2 epochs"):
    return Recipe.model_validate(
        RECIPE | {"data": {"sources": [{"kind": "files", "paths": [str(corpus)]}]}, "train": {"duration": duration}}
    )


def test_a_dataset_that_is_there_is_counted(tmp_path, monkeypatch):
    described = json.dumps({"vocabulary": 320, "splits": SPLITS}).encode()
    dataset = make_artifact(tmp_path, "data", {"dataset.json": described})
    monkeypatch.setattr(facts, "left_here", lambda recipe, inputs, *, root, kind: {"dataset": dataset}[kind])
    known = known_facts(recipe(tmp_path / "gone"), root=tmp_path)
    assert (known.train_tokens, known.train_documents, known.vocabulary, known.counted) == (9000, 12, 320, True)
    (dataset.path / "dataset.json").write_text("{}")
    with pytest.raises(DataError, match="damaged file"):
        known_facts(recipe(tmp_path / "gone"), root=tmp_path)


def test_an_epoch_of_no_dataset_is_estimated_from_the_corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text("word " * 5000)
    asked = recipe(tmp_path / "corpus.txt")
    for root in (None, tmp_path / "workspace"):
        assert known_facts(asked, root=root) == estimated_facts(asked, corpus_bytes=25000)


def test_a_corpus_that_is_not_here_stops_no_plan_but_one_in_epochs(tmp_path):
    for gone in (tmp_path / "gone", "https://nowhere.invalid/corpus.txt"):
        assert known_facts(recipe(gone, "5 steps")).validation_tokens is None
    with pytest.raises(DataError, match="gone"):
        known_facts(recipe(tmp_path / "gone"))


def test_the_corpus_says_the_size_of_a_whole_validation_split(tmp_path):
    (tmp_path / "corpus.txt").write_text("word " * 5000)
    asked = recipe(tmp_path / "corpus.txt", "5 steps")
    assert known_facts(asked).validation_tokens == round(0.15 * 25000 / bytes_per_token(32768))


def test_a_dataset_that_is_here_and_damaged_is_no_estimate(tmp_path):
    (tmp_path / "corpus.txt").write_text("word " * 5000)
    asked, workspace = recipe(tmp_path / "corpus.txt"), Workspace(tmp_path / "workspace")
    here = address(STAGES["data"], asked, {}, workspace.root)
    folder = workspace.path("data", here.fingerprint)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="the manifest cannot be read"):
        known_facts(asked, root=workspace.root)


def test_a_dataset_of_another_corpus_is_not_taken(tmp_path):
    make_artifact(tmp_path, "data", {"dataset.json": b"{}"})
    (tmp_path / "corpus.txt").write_text("word " * 5000)
    assert not known_facts(recipe(tmp_path / "corpus.txt"), root=tmp_path).counted
    assert not known_facts(recipe(tmp_path / "gone", "5 steps"), root=tmp_path).counted
