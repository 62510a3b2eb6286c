"""Runs of several processes are stopped by a time limit, damaged, and brought to other layouts."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.ranks import told, weights

pytestmark = pytest.mark.slow

RANKS = ("train.exec.layout.dp_shard=2", "train.duration=60 steps", "train.validation.every_steps=7")


@pytest.fixture(scope="module")
def undisturbed(make_project):
    project = make_project()
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def prepared(undisturbed, tmp_path) -> Callable[[], object]:
    """The same recipe in another workspace, with everything but the training."""

    def make():
        for stage in ("doctor", "data"):
            source = undisturbed.artifact(stage)
            shutil.copytree(source, tmp_path / "runs" / source.name)
        return type(undisturbed)(recipe=undisturbed.recipe, workspace=tmp_path / "runs")

    return make


LAYOUTS = (
    ("train.exec.layout.dp_replicate=4",),
    ("train.exec.layout.pp=2", "train.exec.layout.zero_stage=0"),
    ("train.exec.layout.dp_shard=1",),
    ("train.exec.layout.dp_shard=3", "train.exec.layout.zero_stage=1"),
)


def losses(project) -> dict[int, float]:
    path = next(project.workspace.glob("train-*/events.jsonl"))
    said = (json.loads(line) for line in path.read_text().splitlines())
    return {each["step"]: each["value"] for each in said if each["name"] == "train/loss"}


def test_other_numbers_of_ranks_and_layouts_go_on_to_the_same_losses(make_project, tmp_path) -> None:
    """Four ranks, then two stages, one process and three shards: dropout and all, to rounding."""
    common = (
        "train.duration=16 steps",
        "train.exec.log_every_steps=1",
        "model.dropout.residual=0.1",
        "train.batch_tokens=384",
    )
    alone = make_project()
    assert alone.call("train", *common).returncode == 0
    project = type(alone)(recipe=alone.recipe, workspace=tmp_path / "runs")
    for number, layout in enumerate(LAYOUTS, start=1):
        last = number == len(LAYOUTS)
        before = steps_told(project)
        process = subprocess.Popen(
            [*project.command("train", *common, *layout), *(() if last else ("train.exec.checkpoint_every=1 ms",))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if not last:
            wait_for_another_step(project, process, before)
            process.send_signal(signal.SIGUSR1)
        _, said = process.communicate(timeout=600)
        assert process.returncode == (0 if last else 138), said
        assert last or "stopped by SIGUSR1 after step" in said
    ours, truth = losses(project), losses(alone)
    assert ours.keys() == truth.keys()
    assert list(ours.values()) == pytest.approx(list(truth.values()), rel=2e-3)


def steps_told(project) -> int:
    return told(project).count('"train/loss"')


def wait_for_another_step(project, process: subprocess.Popen[str], before: int) -> None:
    """Waits until this process, and not one before it, has told of a step: from then on it hears signals."""
    deadline = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < deadline and steps_told(project) <= before:
        time.sleep(0.02)


def test_a_time_limit_saves_and_says_how_to_go_on(undisturbed, prepared) -> None:
    project = prepared()
    # The time is over before the first step: one is made all the same, so that every command makes some way.
    done = project.call("train", *RANKS, "train.exec.time_limit=1 ms")
    assert done.returncode == 130, done.stderr
    assert "stopped by its time limit after step" in done.stderr
    assert "run the same command to go on from there" in done.stderr
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stderr
    assert weights(project) == weights(undisturbed)


def test_a_damaged_shard_is_named_and_ends_with_5_where_nothing_older_is(undisturbed, prepared) -> None:
    project = prepared()
    assert project.call("train", *RANKS, "train.exec.time_limit=1 ms").returncode == 130
    (path,) = project.workspace.glob("train-*.partial/checkpoints/step-*/model-00002-of-00002.safetensors")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    done = project.call("train", *RANKS)
    assert done.returncode == 5, done.stderr
    assert "every checkpoint of this run is damaged" in done.stderr
    assert "damaged tensor" in done.stderr and path.name in done.stderr


def test_a_checkpoint_of_several_ranks_is_a_base_and_a_bundle(undisturbed, tmp_path) -> None:
    (checkpoint,) = sorted((undisturbed.artifact("train") / "checkpoints").iterdir())[-1:]
    bundle = tmp_path / "bundle"
    command = ["checkpoint", "convert", str(checkpoint), str(bundle)]
    script = [*undisturbed.command("train")[:3], *command]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    trained = undisturbed.artifact("train")
    from safetensors.torch import load_file

    ours, theirs = load_file(bundle / "model.safetensors"), load_file(trained / "model.safetensors")
    assert ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)
    project = type(undisturbed)(recipe=undisturbed.recipe, workspace=tmp_path / "runs")
    tokens = ("data.tokenizer.kind=pretrained", f"data.tokenizer.path={Path(checkpoint, 'tokenizer.json')}")
    done = project.call("train", "train.duration=2 steps", f"model.init_from={checkpoint}", *tokens)
    assert done.returncode == 0, done.stderr
