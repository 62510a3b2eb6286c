"""A dataset that is there is counted, below a base too; another one is estimated from the corpus."""

import json
from dataclasses import replace

import pytest

from fixtures.tiny_models import tokenizer
from trainwright.artifact.reading import described_facts
from trainwright.artifact.workspace import Workspace
from trainwright.core.errors import DataError
from trainwright.core.records import to_json
from trainwright.pipeline import planning
from trainwright.pipeline.facts import known_facts
from trainwright.pipeline.graph import STAGES, inputs_of
from trainwright.pipeline.planning import plan_here, question_about, training_of
from trainwright.pipeline.runner import address, run
from trainwright.pipeline.steps import steps
from trainwright.planner.plan.estimated_facts import bytes_per_token, estimated_facts
from trainwright.planner.plan.workload import resolve, steps_in
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.train import ValidationSection
from trainwright.testing.artifacts import make_artifact, manifest_of
from trainwright.testing.machine import fake_machine

RECIPE = {"name": "epochs", "model": {"layers": 2, "width": 64, "heads": 2, "context_tokens": 1024}}


def recipe(corpus, duration="2 epochs", *, tokens=32768, **keys):
    data = {"sources": [{"kind": "files", "paths": [str(corpus)]}], "tokenizer": {"vocabulary": tokens}}
    train = {"duration": duration, "sequence_tokens": 128, "batch_tokens": 1024}
    return Recipe.model_validate(RECIPE | {"data": data, "train": train} | keys)


def facts(asked, root):
    training, _ = training_of(asked, root=root, step=None)
    return known_facts(training, {})


def counts(dataset):
    """What a dataset says of itself."""
    record = json.loads((dataset.path / "dataset.json").read_text())
    train, validation = record["splits"]["train"], record["splits"].get("validation", {})
    return train["tokens"], train["documents"], validation.get("tokens"), record["vocabulary"], True


def known(facts):
    return facts.train_tokens, facts.train_documents, facts.validation_tokens, facts.vocabulary, facts.counted


@pytest.fixture
def corpus(tmp_path):
    """Forty files of text."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.txt").write_text(f"text {number}: " + "some words that differ " * (20 + number))
    return folder


def test_a_dataset_that_is_there_is_counted(tmp_path, corpus):
    asked, root = recipe(corpus, tokens=300), tmp_path / "runs"
    assert not facts(asked, root).counted
    dataset = run(asked, root=root, upto="data")["data"]
    assert known(facts(asked, root)) == counts(dataset)
    (dataset.path / "dataset.json").write_text("{}")
    with pytest.raises(DataError, match="damaged file"):
        facts(asked, root)


def test_a_dataset_below_a_base_elsewhere_is_counted_in_its_tokens(tmp_path, corpus, monkeypatch):
    monkeypatch.setattr(planning, "machine_of", lambda recipe, root: fake_machine())
    tokens = tokenizer(320).to_str().encode()
    shape = json.dumps(to_json(recipe(corpus).model_spec(vocabulary=320))).encode()
    base = make_artifact(tmp_path / "other", "train", {"tokenizer.json": tokens, "model.json": shape})
    asked = recipe(corpus, stages=[{"stage": "train", "from": {"base": str(base.path)}}])
    root = tmp_path / "runs"
    estimated = facts(asked, root)
    assert (estimated.counted, estimated.vocabulary) == (False, 320)
    dataset = run(asked, root=root, upto="data")["data"]
    assert known(facts(asked, root)) == counts(dataset)
    training, _ = training_of(asked, root=root, step=None)
    planned, question = plan_here(training, root=root), question_about(training, on="8xa100-80gb", root=root)
    assert planned.workload.steps == question.workload.steps
    assert planned.workload.steps == steps_in(training.recipe, "2 epochs", described_facts(dataset.path))


def test_a_dataset_below_a_step_that_was_trained_here_is_counted(tmp_path, corpus, monkeypatch):
    monkeypatch.setattr("trainwright.hardware.machine.facts.machine_digest", lambda: "0" * 64)
    tuned = {"sources": [{"kind": "files", "paths": [f"{corpus}/[1-3]*.txt"]}]}
    second = {"name": "tuned", "stage": "train", "from": "first", "data": tuned}
    asked = recipe(corpus, tokens=300, stages=[{"name": "first", "stage": "train"}, second])
    root, done = tmp_path / "runs", {}
    for step in steps(asked):
        if step.stage.name in ("doctor", "plan") or step.name == "first":
            here = address(step.stage, step.recipe, inputs_of(step, done), root)
            draft = Workspace(root).draft(step.stage.name, here.fingerprint)
            (draft / "tokenizer.json").write_text(tokenizer(320).to_str())
            manifest = replace(manifest_of(step.stage.name, {"precision": "fp32"}), fingerprint=here.fingerprint)
            done[step.name] = Workspace(root).commit(draft, manifest)
        elif step.stage.name == "data":
            done |= run(asked, root=root, upto=step.name)
    training, _ = training_of(asked, root=root, step="tuned")
    assert known(known_facts(training, {})) == counts(done["tuned.data"])
    assert known_facts(training, {}).vocabulary == 320


def test_a_named_dataset_is_counted(tmp_path, corpus):
    made = run(recipe(corpus), root=tmp_path / "other", upto="data")["data"]
    asked = recipe(tmp_path / "gone", stages=[{"stage": "train", "from": {"dataset": str(made.path)}}])
    assert known(facts(asked, tmp_path / "runs")) == counts(made)


def test_an_epoch_of_no_dataset_is_estimated_from_the_corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text("word " * 5000)
    asked = recipe(tmp_path / "corpus.txt")
    assert facts(asked, tmp_path / "workspace") == estimated_facts(asked, corpus_bytes=25000)


def test_a_corpus_that_is_not_here_stops_no_plan_but_one_in_epochs(tmp_path):
    for gone in (tmp_path / "gone", "https://nowhere.invalid/corpus.txt"):
        assert facts(recipe(gone, "5 steps"), tmp_path).validation_tokens is None
    with pytest.raises(DataError, match="gone"):
        facts(recipe(tmp_path / "gone"), tmp_path)


def test_the_corpus_says_the_size_of_a_whole_validation_split(tmp_path):
    (tmp_path / "corpus.txt").write_text("word " * 5000)
    asked = recipe(tmp_path / "corpus.txt", "5 steps")
    size = round(0.15 * 25000 / bytes_per_token(32768))
    assert facts(asked, tmp_path).validation_tokens == size
    validated = asked.train.model_copy(update={"validation": ValidationSection(tokens=10**7)})
    more = asked.model_copy(update={"train": validated})
    assert resolve(more, facts(more, tmp_path), precision="bf16").validation_tokens == size, "no more than there are"


def test_a_dataset_that_is_here_and_damaged_is_no_estimate(tmp_path):
    (tmp_path / "corpus.txt").write_text("word " * 5000)
    asked, workspace = recipe(tmp_path / "corpus.txt"), Workspace(tmp_path / "workspace")
    here = address(STAGES["data"], asked, {}, workspace.root)
    folder = workspace.path("data", here.fingerprint)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="the manifest cannot be read"):
        facts(asked, workspace.root)


def test_a_dataset_of_another_corpus_is_not_taken(tmp_path):
    make_artifact(tmp_path, "data", {"dataset.json": b"{}"})
    (tmp_path / "corpus.txt").write_text("word " * 5000)
    assert not facts(recipe(tmp_path / "corpus.txt"), tmp_path).counted
    assert not facts(recipe(tmp_path / "gone", "5 steps"), tmp_path).counted
