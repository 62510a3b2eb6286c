from __future__ import annotations

import gzip
import json
import math
import random
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.stage import Context
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.decoder import Decoder
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import Evaluation, Metric
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.task import TaskSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.evaluate import run
from trainwright.stages.evaluate.ngram import NGram, bits, stream
from trainwright.stages.train.checkpoints import write_bundle
from trainwright.testing.artifacts import make_artifact, make_dataset, make_plan

WORDS = ("alpha", "größe", "def", "return", "(x)", "=", "\n", "  ")
TINY = {
    "name": "tiny",
    "model": {"layers": 1, "width": 16, "heads": 2, "context_tokens": 64},
    "data": {"sources": [{"kind": "python-stdlib"}]},
    "train": {"sequence_tokens": 16, "batch_tokens": 64},
    "evaluate": {"prompts": ["def ", "return (x)"], "max_new_tokens": 8},
}


def documents(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 60))) for _ in range(count)]


SPLITS = {"train": documents(1, 30), "validation": documents(2, 6), "test": documents(3, 5)}


@pytest.fixture
def world(tmp_path):
    """A recipe, its inputs, and the model in them."""

    def make(**evaluate):
        recipe = Recipe.model_validate(TINY | {"evaluate": TINY["evaluate"] | evaluate})
        data = make_dataset(tmp_path, SPLITS)
        dataset = TokenDataset.open(data.path)
        model = Decoder(recipe.model.spec(vocabulary=dataset.vocabulary))
        model.initialise(1)
        bundle = tmp_path / "bundle"
        bundle.mkdir()
        write_bundle(bundle, model, dict(model.named_parameters()), dataset.tokenizer_path)
        train = make_artifact(tmp_path, "train", {path.name: path.read_bytes() for path in bundle.iterdir()})
        plan = make_plan(tmp_path, recipe, vocabulary=dataset.vocabulary)
        return recipe, {"dataset": data, "checkpoint": train, "plan": plan}, model, dataset

    return make


def evaluate(recipe, inputs, out):
    out.mkdir(exist_ok=True)
    seen = []
    with Events(None, run="tiny", listeners=(seen.append,)) as events:
        result = run(Context(recipe=recipe, inputs=inputs, out=out, root=out.parent, events=events))
    return json.loads((out / "evaluation.json").read_text(encoding="utf-8")), result, seen


def test_loss_and_bits_per_byte_equal_brute_force(world, tmp_path):
    recipe, inputs, model, dataset = world()
    evaluation, result, _ = evaluate(recipe, inputs, tmp_path / "out")
    for name in ("validation", "test"):
        split = dataset.splits[name]
        ids = torch.from_numpy(split.read(0, split.tokens).astype("int64"))
        nats = 0.0
        with torch.no_grad():
            for start in range(0, len(ids) - 1, 16):
                window = ids[start : start + 17]
                logits = model.logits(model(window[None, :-1]))
                nats += float(F.cross_entropy(logits[0], window[1:], reduction="sum"))
        found, size = evaluation["splits"][name], sum(len(text.encode()) for text in SPLITS[name])
        measured = {name: metric["value"] for name, metric in found["metrics"].items()}
        assert measured["loss"] == pytest.approx(nats / (len(ids) - 1), rel=1e-5)
        assert measured["perplexity"] == pytest.approx(math.exp(nats / (len(ids) - 1)), rel=1e-5)
        assert measured["bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-5)
        assert found["record"] == {"documents": len(SPLITS[name]), "text_bytes": size}
        assert result.summary[f"{name}_bits_per_byte"] == measured["bits_per_byte"]


def test_a_metric_may_have_any_name():
    """Also one that the stage itself writes: each keeps its value."""
    names = ("loss", "metrics", "unit", "count", "seconds", "record", "details", "baselines", "images_per_s")
    metrics = {name: Metric(value=-float(number)) for number, name in enumerate(names)}
    evaluation = Evaluation(count=7, metrics=metrics, record={"seconds": "dusk"}, details={"count": []})
    found = evaluation.as_json(unit="image")
    assert [metric["value"] for metric in found["metrics"].values()] == [-float(n) for n in range(len(names))]
    assert (found["count"], found["unit"]) == (7, "image")
    assert (found["record"], found["details"]) == ({"seconds": "dusk"}, {"count": []})


def test_what_is_no_number_is_none_wherever_it_stands():
    metrics = {"loss": Metric(value=1.0), "f1": Metric(value=math.nan), "ratio": Metric(value=-math.inf)}
    told = {"rows": [{"class": "a", "f1": math.nan}]}
    found = Evaluation(count=1, metrics=metrics, record={"best": math.inf}, details=told).as_json(unit="document")
    assert [metric["value"] for metric in found["metrics"].values()] == [1.0, None, None]
    assert (found["record"], found["details"]) == ({"best": None}, {"rows": [{"class": "a", "f1": None}]})
    json.dumps(found, allow_nan=False)


def test_a_model_that_tells_other_labels_is_refused(world, tmp_path):
    recipe, inputs, model, dataset = world()
    told = Decoder(replace(model.spec, classes=2, labels=("ham", "spam"), language_head=False))
    told.initialise(1)
    (tmp_path / "told").mkdir()
    write_bundle(tmp_path / "told", told, dict(told.named_parameters()), dataset.tokenizer_path)
    files = {path.name: path.read_bytes() for path in (tmp_path / "told").iterdir()}
    checkpoint = make_artifact(tmp_path / "other", "train", files)
    other = recipe.model_copy(update={"task": TaskSection(name="classify", labels=("spam", "ham"))})
    with pytest.raises(RecipeError, match=r"task\.labels: .* another order \(seen spam, ham, expected ham, spam\)"):
        evaluate(other, inputs | {"checkpoint": checkpoint}, tmp_path / "out")


def test_baselines_are_measured_on_the_original_text(world, tmp_path):
    recipe, inputs, _, _ = world()
    evaluation, _, _ = evaluate(recipe, inputs, tmp_path / "out")
    original = [text.encode() for text in SPLITS["test"]]
    size = sum(map(len, original))
    found = {entry["name"]: entry["bits_per_byte"] for entry in evaluation["splits"]["test"]["baselines"]}
    assert found["gzip -9"] == 8 * sum(len(gzip.compress(text, 9, mtime=0)) for text in original) / size
    counted = NGram(stream([text.encode() for text in SPLITS["train"]]), order=5)
    assert found["5-gram"] == pytest.approx(bits(counted, stream(original)) / size)


def test_completions_come_with_what_of_them_is_training_text(world, tmp_path):
    recipe, inputs, _, _ = world()
    evaluation, _, _ = evaluate(recipe, inputs, tmp_path / "out")
    training = "\n".join(SPLITS["train"])
    assert [completion["prompt"] for completion in evaluation["completions"]] == ["def ", "return (x)"]
    for completion in evaluation["completions"]:
        assert completion["completion_tokens"] <= 8
        assert completion["overlap"]["size_bytes"] <= len(completion["text"].encode())
        assert "\ufffd" in completion["overlap"]["text"] or completion["overlap"]["text"] in training


def test_a_limit_covers_model_and_baselines_alike(world, tmp_path):
    recipe, inputs, _, _ = world(tokens=60)
    evaluation, _, _ = evaluate(recipe, inputs, tmp_path / "out")
    split = evaluation["splits"]["validation"]
    found = split["record"]
    assert 0 < found["documents"] < 6
    assert {(entry["documents"], entry["text_bytes"]) for entry in split["baselines"]} == {
        (found["documents"], found["text_bytes"])
    }


def test_a_finished_split_is_not_measured_again(world, tmp_path):
    recipe, inputs, _, _ = world()
    first, _, _ = evaluate(recipe, inputs, tmp_path / "out")
    again, _, seen = evaluate(recipe, inputs, tmp_path / "out")
    assert again["splits"]["test"]["seconds"] == first["splits"]["test"]["seconds"]
    assert not [event for event in seen if event.kind == "metric"]


def test_a_split_that_is_not_there_is_named(world, tmp_path):
    recipe, inputs, _, _ = world()
    (tmp_path / "other").mkdir()
    inputs["dataset"] = make_dataset(tmp_path / "other", {"train": SPLITS["train"], "validation": SPLITS["validation"]})
    with pytest.raises(DataError, match="no test split"):
        evaluate(recipe, inputs, tmp_path / "out")


def test_it_computes_as_the_plan_says_whatever_the_recipe_asks(world, tmp_path, monkeypatch):
    recipe, inputs, _, dataset = world()
    how = recipe.train.exec.model_copy(update={"device": "cuda", "deterministic": False})
    recipe = recipe.model_copy(update={"train": recipe.train.model_copy(update={"exec": how})})
    seen = []

    def evaluated(self, network, split, options):
        seen.append((network.device.type, torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()))
        return Evaluation(count=1, metrics={"loss": Metric(value=1.0)})

    monkeypatch.setattr(NextToken, "evaluate", evaluated)
    parallel = ParallelPlan(threads=2, deterministic=True)
    inputs["plan"] = make_plan(tmp_path / "other", recipe, vocabulary=dataset.vocabulary, parallel=parallel)
    _, result, _ = evaluate(recipe, inputs, tmp_path / "out")
    assert set(seen) == {("cpu", 2, True)}
    assert (result.execution["device"], result.execution["threads"]) == ("cpu", 2)


@pytest.mark.parametrize(("stage", "name"), [("checkpoint", "model.safetensors"), ("plan", "plan.json")])
def test_a_damaged_input_is_named_and_not_measured(world, tmp_path, stage, name):
    recipe, inputs, _, _ = world()
    path = inputs[stage].path / name
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"{name}: damaged file: its sha256"):
        evaluate(recipe, inputs, tmp_path / "out")
    assert not (tmp_path / "out" / "evaluation.json").exists()


@pytest.fixture
def classified(tmp_path):
    """A recipe that tells labels, its inputs, and a model that has learned nothing."""
    labels = {name: [("spam", "ham")[n % 2] for n in range(len(texts))] for name, texts in SPLITS.items()}
    task = {"name": "classify", "labels": ["ham", "spam"]}
    source = {"kind": "jsonl", "paths": ["a.jsonl"], "label_key": "label"}
    recipe = Recipe.model_validate(TINY | {"evaluate": {}, "task": task, "data": {"sources": [source]}})
    data = make_dataset(tmp_path, SPLITS, labels=labels)
    vocabulary = TokenDataset.open(data.path).vocabulary
    spec = replace(recipe.model.spec(vocabulary=vocabulary), classes=2, labels=("ham", "spam"), language_head=False)
    model = Decoder(spec)
    model.initialise(1)
    (tmp_path / "told").mkdir()
    write_bundle(tmp_path / "told", model, dict(model.named_parameters()), TokenDataset.open(data.path).tokenizer_path)
    files = {path.name: path.read_bytes() for path in (tmp_path / "told").iterdir()}
    plan = make_plan(tmp_path, recipe, vocabulary=vocabulary)
    return recipe, {"dataset": data, "checkpoint": make_artifact(tmp_path, "train", files), "plan": plan}


def test_a_classifier_of_texts_is_held_against_words(classified, tmp_path):
    evaluation, _, _ = evaluate(*classified, tmp_path / "out")
    for name in ("validation", "test"):
        (words,) = evaluation["splits"][name]["baselines"]
        assert words["documents"] == evaluation["splits"][name]["count"] == len(SPLITS[name])
        assert words["train_documents"] == len(SPLITS["train"])
        assert 0 <= words["macro_f1"] <= 1
    assert evaluation["baselines_skipped"] == ""


def test_without_scikit_learn_the_missing_comparison_is_told(classified, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    evaluation, _, seen = evaluate(*classified, tmp_path / "out")
    assert "baselines" not in evaluation["splits"]["test"]
    assert "pip install 'trainwright[baselines]'" in evaluation["baselines_skipped"]
    assert evaluation["baselines_skipped"] in [event.text for event in seen]
