"""Runs of several processes are killed at random, stopped by a time limit and brought to other layouts."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

RANKS = ("train.exec.layout.dp_shard=2", "train.duration=60 steps", "train.validation.every_steps=7")
OFTEN = "train.exec.checkpoint_every=1 ms"
"""At nearly every step a write is under way."""
KILLS = int(os.environ.get("SOAK_KILLS", "5"))
"""How often a run is killed."""


def weights(project) -> str:
    return hashlib.sha256((project.artifact("train") / "model.safetensors").read_bytes()).hexdigest()


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


def events(project) -> str:
    return "".join(path.read_text(errors="replace") for path in project.workspace.glob("train-*.partial/events.jsonl"))


def ranks_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    below = psutil.Process(process.pid).children(recursive=True)
    return [each for each in below if "spawn_main" in " ".join(each.cmdline())]


def start(project, *more: str) -> subprocess.Popen[str]:
    command = project.command("train", *RANKS, *more)
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ)


def training(project, process: subprocess.Popen[str], known: int) -> bool:
    """Waits until the run has said more than ``known`` characters of its steps; False where it has ended."""
    deadline = time.monotonic() + 180
    while process.poll() is None and time.monotonic() < deadline:
        if len(events(project)) > known:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.timeout(120 * (KILLS + 3))
def test_kills_of_one_or_of_all_end_in_the_same_bits(undisturbed, prepared) -> None:
    """At whatever moment: of a step, of a write beside it, of a validation."""
    project, dice = prepared(), random.Random(11)
    for _ in range(KILLS):
        known = len(events(project))
        process = start(project, OFTEN)
        if not training(project, process, known):
            break
        time.sleep(dice.uniform(0, 0.8))
        victims = ranks_of(process)
        if dice.random() < 0.5:
            victims = dice.sample(victims, min(1, len(victims)))
        for victim in victims:
            victim.kill()
        _, said = process.communicate(timeout=120)
        assert process.returncode in (0, 5), said
    done = project.call("train", *RANKS, OFTEN)
    assert done.returncode == 0, done.stderr
    assert weights(project) == weights(undisturbed)
    assert not list(project.workspace.rglob(".step-*"))


LAYOUTS = (
    ("train.exec.layout.dp_replicate=4",),
    ("train.exec.layout.pp=2", "train.exec.layout.zero_stage=0"),
    ("train.exec.layout.dp_shard=1",),
    ("train.exec.layout.dp_shard=3", "train.exec.layout.zero_stage=1"),
)


def losses(project) -> dict[int, float]:
    path = next(project.workspace.glob("train-*/events.jsonl"))
    told = (json.loads(line) for line in path.read_text().splitlines())
    return {each["step"]: each["value"] for each in told if each["name"] == "train/loss"}


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
        process = subprocess.Popen(
            [*project.command("train", *common, *layout), *(() if last else ("train.exec.checkpoint_every=1 ms",))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if not last:
            until(project, process, f'"step": {3 * number}')
            process.send_signal(signal.SIGUSR1)
        _, said = process.communicate(timeout=200)
        assert process.returncode == (0 if last else 138), said
        assert last or "stopped by SIGUSR1 after step" in said
    ours, truth = losses(project), losses(alone)
    assert ours.keys() == truth.keys()
    assert list(ours.values()) == pytest.approx(list(truth.values()), rel=2e-3)


def until(project, process: subprocess.Popen[str], text: str) -> None:
    deadline = time.monotonic() + 180
    while process.poll() is None and time.monotonic() < deadline and text not in events(project):
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
