"""Ranks, or the command, are killed at random moments, over and over: the run ends in the weights of a quiet one.

Five times in ``make test``, as often as it is asked for in ``make soak``.
"""

from __future__ import annotations

import random
import subprocess
import time

import psutil
import pytest

from fixtures.ranks import all_gone, ranks_below, started, told, weights

IN_A_RUN = 5
"""Kills of one run; then another one begins from its start."""
RANKS = (
    "train.exec.layout.dp_shard=2",
    "train.duration=60 steps",
    "train.validation.every_steps=7",
    "train.exec.checkpoint_every=1 ms",  # at nearly every step a write is under way
)
pytestmark = pytest.mark.slow


def wait_for(process: subprocess.Popen[str], ready) -> bool:
    deadline = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(0.02)
    return False


def killed_once(project, dice: random.Random) -> bool:
    """Trains on and kills a rank, all of them or the command: in a step, a write, a validation, or while it starts.

    False where the run had ended before.
    """
    known = len(told(project))
    process = started(project, *RANKS)
    starting = dice.random() < 0.2
    there = wait_for(process, lambda: len(ranks_below(process)) == 2 if starting else len(told(project)) > known)
    if there:
        time.sleep(dice.uniform(0.0, 6.0 if starting else 0.8))
    below = ranks_below(process)
    victims = (
        dice.choice([below[:1], below[1:], below, [psutil.Process(process.pid)]]) if process.poll() is None else []
    )
    for victim in victims:
        victim.kill()
    _, said = process.communicate(timeout=600)
    assert process.returncode in (0, 5, -9), said
    assert all_gone(below), "ranks outlived a kill"
    return bool(victims) and process.returncode != 0


@pytest.fixture(scope="module")
def quiet(make_project):
    project = make_project()
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    return project


def kill(quiet, tmp_path, times: int) -> int:
    """Kills so many times; returns in how many runs."""
    dice, done, runs = random.Random(9), 0, 0
    while done < times:
        project = type(quiet)(recipe=quiet.recipe, workspace=tmp_path / f"run-{runs}" / "runs")
        runs += 1
        for _ in range(IN_A_RUN):
            if done == times or not killed_once(project, dice):
                break
            done += 1
        last = project.call("train", *RANKS)
        assert last.returncode == 0, last.stderr
        assert weights(project) == weights(quiet)
        assert not list(project.workspace.rglob(".step-*"))
    return runs


@pytest.mark.timeout(900)
def test_a_few_kills_lose_nothing(quiet, tmp_path) -> None:
    kill(quiet, tmp_path, IN_A_RUN)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_kills_lose_nothing(quiet, tmp_path, kills: int, record_property) -> None:
    record_property("runs", kill(quiet, tmp_path, kills))
    record_property("kills", kills)
