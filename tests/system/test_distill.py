"""Distillation, from recipe to report: a smaller network learns from the tiny run's, and a kill changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from fixtures.ranks import weights

pytestmark = pytest.mark.slow

SMALLER = ("model.layers=1", "model.width=16", "train.duration=40 steps", "task.name=distill")


@pytest.fixture(scope="module")
def taught(finished, project_of, tmp_path_factory):
    """The same data and machine, another network; the teacher is what the tiny run ended in."""
    workspace = tmp_path_factory.mktemp("taught") / "runs"
    for stage in ("doctor", "data"):
        shutil.copytree(finished.artifact(stage), workspace / finished.artifact(stage).name)
    project = project_of(recipe=finished.recipe, workspace=workspace)
    done = project.call("run", *SMALLER, f"task.teacher={finished.artifact('train')}")
    assert done.returncode == 0, done.stderr + done.stdout
    return project


def metrics_of(project) -> dict[str, list[float]]:
    """What training reported, by name."""
    found: dict[str, list[float]] = {}
    for line in (project.artifact("train") / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "metric":
            found.setdefault(event["name"], []).append(event["value"])
    return found


def test_the_parts_of_the_loss_are_reported_apart_and_fall(taught) -> None:
    metrics = metrics_of(taught)
    parts = zip(metrics["train/loss"], metrics["train/kl"], metrics["train/cross_entropy"], strict=True)
    for loss, divergence, cross_entropy in parts:
        assert loss == pytest.approx(0.5 * 4 * divergence + 0.5 * cross_entropy, rel=1e-4)
    assert 0 < metrics["train/kl"][-1] < 0.8 * metrics["train/kl"][0]
    evaluation = json.loads((taught.artifact("evaluate") / "evaluation.json").read_text())
    assert evaluation["task"] == "distill"
    assert set(evaluation["splits"]["test"]["metrics"]) == {"loss", "bits_per_byte", "perplexity"}
    (page,) = taught.artifact("report").glob("*.html")
    assert "Parts of the loss" in page.read_text()
    plan = json.loads((taught.artifact("plan") / "plan.json").read_text())
    assert "teacher_megabytes" in [each["key"] for each in plan["estimate"]["assumptions"]]


def test_a_killed_training_ends_in_the_same_bits(taught, finished, project_of, tmp_path) -> None:
    project = project_of(recipe=taught.recipe, workspace=tmp_path / "runs")
    for stage in ("doctor", "plan", "data"):
        shutil.copytree(taught.artifact(stage), project.workspace / taught.artifact(stage).name)
    keys = (*SMALLER, f"task.teacher={finished.artifact('train')}")
    process = subprocess.Popen(project.command("train", *keys), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < deadline:
        if any(project.workspace.glob("train-*.partial/checkpoints/step-*")):
            break
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    done = project.call("train", *keys)
    assert done.returncode == 0, done.stderr
    assert weights(project) == weights(taught)
