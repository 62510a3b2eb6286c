"""A second task, from recipe to report: documents whose one telling word decides their label."""

from __future__ import annotations

import json
import random

import pytest

from trainwright.cli.main import main

pytestmark = pytest.mark.slow

RECIPE = """
name: reviews
seed: 3
task: {name: classify, labels: [negative, positive]}
model: {family: llama, layers: 2, width: 32, heads: 2, context_tokens: 32}
data:
  sources:
    - {kind: jsonl, paths: [%s], label_key: label}
  tokenizer: {vocabulary: 320}
train:
  sequence_tokens: 32
  batch_tokens: 512
  duration: 100 steps
  precision: fp32
  optimizer: {lr: 3e-3}
  schedule: {warmup: 5 steps}
  validation: {every_steps: 40}
  exec: {compile: false, threads: 1, micro_batch: 4}
"""
TELLING = {"positive": ("good", "fine", "great"), "negative": ("bad", "poor", "dull")}


@pytest.fixture(scope="module")
def classified(tmp_path_factory, project_of):
    root = tmp_path_factory.mktemp("classify")
    dice = random.Random(1)
    with (root / "reviews.jsonl").open("w") as stream:
        for number in range(600):
            label = ("negative", "positive")[number % 2]
            words = [dice.choice(["the", "film", "was", "and", "a"]) for _ in range(dice.randint(5, 14))]
            words[dice.randrange(len(words))] = dice.choice(TELLING[label])
            stream.write(json.dumps({"text": f"{' '.join(words)} {number}", "label": label}) + "\n")
    recipe = root / "reviews.yaml"
    recipe.write_text(RECIPE % (root / "reviews.jsonl"))
    project = project_of(recipe=recipe, workspace=root / "runs")
    done = project.call("run")
    assert done.returncode == 0, done.stderr + done.stdout
    return project


def test_it_learns_what_can_be_told(classified) -> None:
    evaluation = json.loads((classified.artifact("evaluate") / "evaluation.json").read_text())
    test = evaluation["splits"]["test"]
    assert evaluation["task"] == "classify"
    accuracy = test["metrics"]["accuracy"]["value"]
    assert accuracy > 0.9 > test["record"]["commonest_class_accuracy"] + 0.2
    counts = test["details"]["confusion"]["counts"]
    assert sum(map(sum, counts)) == test["count"]
    assert accuracy == (counts[0][0] + counts[1][1]) / test["count"]
    assert [row["label"] for row in test["details"]["by_label"]] == ["negative", "positive"]


def test_labels_are_in_the_dataset_and_validated_while_training(classified) -> None:
    summary = json.loads((classified.artifact("train") / "summary.json").read_text())
    dataset = json.loads((classified.artifact("data") / "dataset.json").read_text())
    assert (dataset["kind"], dataset["labels"]) == ("documents-with-labels", ["negative", "positive"])
    assert summary["validation"]["metrics"]["accuracy"]["value"] > 0.8


def test_the_report_stands_and_nothing_is_served(classified) -> None:
    assert list(classified.artifact("report").glob("*.html"))
    assert not list(classified.workspace.glob("serve-*"))


BASE = """
stages:
  - {name: base, stage: train, task: {name: next-token, labels: []}, train: {duration: 10 steps}}
  - {name: told, stage: train, from: base, task: {name: classify, labels: [negative, positive]},
     train: {duration: 100 steps}}
  - {stage: evaluate, from: told}
"""


def test_a_classifier_is_trained_from_a_base_of_the_same_recipe(classified, project_of, tmp_path) -> None:
    recipe = tmp_path / "based.yaml"
    recipe.write_text(classified.recipe.read_text() + BASE)
    project = project_of(recipe=recipe, workspace=tmp_path / "runs")
    done = project.call("run")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("a new head for 2 labels") == 1
    evaluation = json.loads((project.artifact("evaluate") / "evaluation.json").read_text())
    assert evaluation["splits"]["test"]["metrics"]["accuracy"]["value"] > 0.9


def test_a_recipe_that_init_writes_is_trained(classified, project_of, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(classified.recipe.parent)
    assert main(["init", "classify", "--data", "reviews.jsonl"]) == 0
    project = project_of(recipe=classified.recipe.parent / "classify.yaml", workspace=tmp_path / "runs")
    smaller = ("model.layers=1", "model.width=32", "data.tokenizer.vocabulary=320", "train.exec.compile=false")
    trained = project.json("train", "train.duration=2 steps", *smaller)
    assert "accuracy" in json.dumps(trained)


def test_a_source_without_labels_is_refused_before_anything_runs(classified, project_of, tmp_path) -> None:
    recipe = tmp_path / "unlabelled.yaml"
    recipe.write_text(classified.recipe.read_text().replace(", label_key: label", ""))
    project = project_of(recipe=recipe, workspace=tmp_path / "runs")
    done = project.call("run")
    assert done.returncode == 2
    assert "unlabelled.yaml:8" in done.stderr and "data.sources.0 has no labels" in done.stderr
    assert not list(project.workspace.glob("*"))


SEVERAL = {"good": "positive", "brief": "short", "hmm": "ironic"}


def test_several_labels_are_told_from_recipe_to_report(project_of, tmp_path) -> None:
    dice, lines = random.Random(1), []
    for number in range(600):
        words = [dice.choice(["the", "film", "was", "and", "a"]) for _ in range(dice.randint(5, 12))]
        telling = [word for word in SEVERAL if dice.random() < 0.4]
        for word in telling:
            words.insert(dice.randrange(len(words)), word)
        text, tags = f"{' '.join(words)} {number}", [SEVERAL[word] for word in telling]
        lines.append(json.dumps({"text": text, "tags": tags}) + "\n")
    (tmp_path / "reviews.jsonl").write_text("".join(lines))
    recipe, many = tmp_path / "many.yaml", RECIPE % (tmp_path / "reviews.jsonl")
    many = many.replace("label_key: label", "label_key: tags, label_kind: names")
    many = many.replace("classify, labels: [negative, positive]", "classify-many, labels: [positive, short]")
    recipe.write_text(many)
    project = project_of(recipe=recipe, workspace=tmp_path / "runs")
    refused = project.call("run")
    assert refused.returncode == 2 and "documents have labels that task.labels lacks (seen 'ironic'" in refused.stderr
    assert not list(project.workspace.glob("*"))
    recipe.write_text(many.replace("[positive, short]", "[positive, short, ironic]"))
    done = project.call("run")
    assert done.returncode == 0, done.stderr
    test = json.loads((project.artifact("evaluate") / "evaluation.json").read_text())["splits"]["test"]
    assert test["count"] == 3 * test["record"]["documents"]
    assert test["metrics"]["macro_f1"]["value"] > 0.85
    assert test["metrics"]["subset_accuracy"]["value"] > 0.7 > test["record"]["commonest_set_accuracy"] + 0.2
    (report,) = project.artifact("report").glob("*.html")
    page = report.read_text()
    assert "Precision over recall, all labels together" in page and "subset accuracy" in page.lower()


WORTH = {"good": 2, "fine": 1, "dull": -1, "bad": -2}


def test_a_number_is_told_from_recipe_to_report(project_of, tmp_path) -> None:
    dice, lines = random.Random(1), ['{"text": "spoilt", "y": NaN}\n']
    for number in range(600):
        words, telling = dice.choices(["the", "film", "was"], k=dice.randint(4, 9)), dice.choice(list(WORTH))
        words.insert(dice.randrange(len(words)), telling)
        lines.append(json.dumps({"text": f"{' '.join(words)} {number}", "y": 50 + 5 * WORTH[telling]}) + "\n")
    (tmp_path / "reviews.jsonl").write_text("".join(lines))
    recipe, text = tmp_path / "stars.yaml", RECIPE % (tmp_path / "reviews.jsonl")
    text = text.replace("classify, labels: [negative, positive]", "regress").replace("label_key: label", "label_key: y")
    recipe.write_text(text)
    project = project_of(recipe=recipe, workspace=tmp_path / "runs")
    refused = project.call("run")
    assert refused.returncode == 2 and "the task regress needs label_kind: number" in refused.stderr
    recipe.write_text(text.replace("label_key: y", "label_key: y, label_kind: number"))
    done = project.call("run")
    assert done.returncode == 0, done.stderr
    assert "skipped 1 broken record: 'y' is not a finite number (reviews.jsonl:1)" in done.stderr
    test = json.loads((project.artifact("evaluate") / "evaluation.json").read_text())["splits"]["test"]
    measured = {name: metric["value"] for name, metric in test["metrics"].items()}
    assert measured["r2"] > 0.8 and measured["mae"] < 4
    scale = json.loads((project.artifact("train") / "target_scale.json").read_text())
    assert measured["mse"] == pytest.approx(measured["loss"] * scale["std"] ** 2, rel=1e-5)
    config = json.loads((project.artifact("export") / "huggingface" / "config.json").read_text())
    assert (config["target_mean"], config["target_std"]) == (scale["mean"], scale["std"])
    (report,) = project.artifact("report").glob("*.html")
    page = report.read_text()
    assert "Predicted over true number" in page and "without error" in page and "scaled error" in page


WORDS_RECIPE = """
name: words
model: {family: bert, layers: 1, width: 32, heads: 2, context_tokens: 32}
data: {sources: [{kind: conll, paths: [%s]}], tokenizer: {vocabulary: 300}}
task: {name: classify-tokens, labels: [O, B-NUM, I-NUM]}
train:
  {sequence_tokens: 32, batch_tokens: 512, duration: 60 steps, optimizer: {name: adamw, lr: 0.005}, exec: {compile: no}}
evaluate: {splits: [test]}
"""


def test_labels_of_words_are_told_from_columns_to_report(project_of, tmp_path) -> None:
    dice, lines = random.Random(3), ["-DOCSTART- O\n\n"]
    for _ in range(600):
        for _ in range(dice.randint(2, 5)):
            amount = [f"{dice.randrange(99)} B-NUM\n", f"{dice.choice(['km', 'kg'])} I-NUM\n"]
            lines += [f"{dice.choice(['the', 'a', 'cat'])} O\n", *amount[: dice.randint(0, 2)]]
        lines.append("\n")
    (tmp_path / "a.conll").write_text("".join([*lines, "x I-NUM\ny O\n\nz\n\n"]))
    recipe = tmp_path / "words.yaml"
    recipe.write_text((WORDS_RECIPE % (tmp_path / "a.conll")).replace("B-NUM, ", ""))
    project = project_of(recipe=recipe, workspace=tmp_path / "runs")
    refused = project.call("run")
    assert refused.returncode == 2 and "labels that task.labels lacks (seen 'B-NUM'" in refused.stderr
    recipe.write_text(WORDS_RECIPE % (tmp_path / "a.conll"))
    done = project.call("run")
    assert done.returncode == 0, done.stderr
    assert "1 sentence with labels that are of no whole entity of IOB2 (a.conll:" in done.stderr
    assert "skipped 1 broken record: a line has too few columns" in done.stderr
    test = json.loads((project.artifact("evaluate") / "evaluation.json").read_text())["splits"]["test"]
    assert (test["unit"], test["record"]["scheme"]) == ("word", "IOB2")
    assert test["metrics"]["entity_f1"]["value"] > 0.9
    (report,) = project.artifact("report").glob("*.html")
    assert "entity f1" in report.read_text().lower()
    config = json.loads((project.artifact("export") / "huggingface" / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert config["id2label"] == {"0": "O", "1": "B-NUM", "2": "I-NUM"}
