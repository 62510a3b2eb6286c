"""Ranks are killed at random moments, over and over, and the run ends in the weights of a quiet one (``make soak``)."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import time

import psutil
import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

STEPS = 150
RANKS = ("train.exec.layout.dp_shard=2", f"train.duration={STEPS} steps", "train.exec.checkpoint_every=0.2")


def weights(project) -> str:
    return hashlib.sha256((project.artifact("train") / "model.safetensors").read_bytes()).hexdigest()


def ranks_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that train, as far as they have started."""
    try:
        below = psutil.Process(process.pid).children(recursive=True)
        return [each for each in below if "spawn_main" in " ".join(each.cmdline())]
    except psutil.NoSuchProcess:
        return []


def killed_once(project, dice: random.Random) -> bool:
    """Starts the training and kills a rank, or the command, at a random moment; whether anything was there to kill."""
    process = subprocess.Popen(
        project.command("train", *RANKS), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
    )
    deadline = time.monotonic() + 60
    while process.poll() is None and len(ranks_of(process)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(dice.uniform(0.0, 12.0))
    below = ranks_of(process)
    if process.poll() is not None:
        return False
    try:
        dice.choice([*below, psutil.Process(process.pid)]).kill()
    except psutil.NoSuchProcess:  # it ended by itself meanwhile
        process.wait()
        return False
    process.wait(timeout=300)
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive, f"ranks outlived a kill: {alive}"
    return True


def test_fifty_kills_lose_nothing(make_project, project_of, tmp_path, kills: int, record_property) -> None:
    quiet = make_project()
    assert quiet.call("train", *RANKS).returncode == 0
    expected, dice, done, runs = weights(quiet), random.Random(9), 0, 0
    while done < kills:
        project = project_of(recipe=quiet.recipe, workspace=tmp_path / f"runs-{runs}")
        runs += 1
        for _ in range(5):
            if done == kills or not killed_once(project, dice):
                break
            done += 1
        last = project.call("train", *RANKS)
        assert last.returncode == 0, last.stderr
        assert weights(project) == expected
    record_property("kills", done)
    record_property("runs", runs)
