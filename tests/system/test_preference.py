"""Preferences, from recipe to report: of two answers to a sum the right one is preferred in the end."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from fixtures.ranks import weights

pytestmark = pytest.mark.slow

RECIPE = """
name: prefer
seed: 3
task: {name: preference, beta: 0.2}
model: {family: llama, layers: 2, width: 32, heads: 2, context_tokens: 64}
data:
  sources: [{kind: preferences, paths: [%s]}]
  tokenizer: {vocabulary: 300}
  chat: {template: turns}
train:
  sequence_tokens: 64
  batch_tokens: 1024
  duration: 40 steps
  precision: fp32
  optimizer: {lr: 3e-3}
  schedule: {warmup: 5 steps}
  validation: {every_steps: 20}
  exec: {compile: false, threads: 1, micro_batch: 8, checkpoint_every: 100 ms}
evaluate: {prompts: ["say a"], max_new_tokens: 4}
"""


def write_pairs(path) -> None:
    """A word and its letters: the better answer has them in order, the worse one backwards."""
    dice, letters = random.Random(1), "abcdefgh"
    with path.open("w") as stream:
        for number in range(300):
            first = dice.randrange(4)
            word = letters[first : first + 4]
            record = {"prompt": f"say {letters[first]} {number}", "chosen": word, "rejected": word[::-1]}
            stream.write(json.dumps(record) + "\n")


@pytest.fixture(scope="module")
def preferred(tmp_path_factory, project_of):
    root = tmp_path_factory.mktemp("preference")
    write_pairs(root / "pairs.jsonl")
    recipe = root / "prefer.yaml"
    recipe.write_text(RECIPE % (root / "pairs.jsonl"))
    project = project_of(recipe=recipe, workspace=root / "runs")
    done = project.call("run")
    assert done.returncode == 0, done.stderr + done.stdout
    return project


def test_held_out_answers_are_preferred(preferred) -> None:
    evaluation = json.loads((preferred.artifact("evaluate") / "evaluation.json").read_text())
    test = evaluation["splits"]["test"]
    metrics = {name: metric["value"] for name, metric in test["metrics"].items()}
    assert (evaluation["task"], test["unit"]) == ("preference", "pair")
    assert metrics["rewards/accuracies"] > 0.9
    assert metrics["rewards/chosen"] - metrics["rewards/rejected"] == pytest.approx(metrics["rewards/margins"])
    assert 0 < metrics["loss"] < 0.69 and metrics["kl"] > 0
    summary = json.loads((preferred.artifact("train") / "summary.json").read_text())
    assert summary["validation"]["metrics"]["rewards/accuracies"]["value"] > 0.9


def test_the_report_the_audit_and_the_bundle_stand(preferred) -> None:
    (page,) = preferred.artifact("report").glob("*.html")
    assert "rewards/accuracies" in page.read_text()
    assert preferred.json("audit")
    assert list(preferred.artifact("export").rglob("chat_template.jinja"))


def test_a_killed_training_ends_in_the_same_bits(preferred, project_of, tmp_path) -> None:
    """Killed once it has begun to keep what the first network says; what is whole of it is read again."""
    project = project_of(recipe=preferred.recipe, workspace=tmp_path / "runs")
    for stage in ("doctor", "plan", "data"):
        made = preferred.artifact(stage)
        shutil.copytree(made, project.workspace / made.name)
    process = subprocess.Popen(project.command("train"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < deadline:
        if any(project.workspace.glob("train-*.partial/train.references")):
            break
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    done = project.call("train")
    assert done.returncode == 0, done.stderr
    assert weights(project) == weights(preferred)
    for name in ("train.references", "references.json"):
        assert (project.artifact("train") / name).read_bytes() == (preferred.artifact("train") / name).read_bytes()
