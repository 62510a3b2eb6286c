"""Two processes train as one command: killed or stopped at any moment, they end in the weights of a quiet run."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time

import psutil
import pytest

pytestmark = pytest.mark.slow

RANKS = ("train.exec.layout.dp_shard=2", "train.duration=40 steps", "train.exec.checkpoint_every=0.2")


def weights(project) -> str:
    return hashlib.sha256((project.artifact("train") / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def undisturbed(make_project):
    project = make_project()
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def project(undisturbed, tmp_path):
    """The same recipe and corpus in another workspace."""
    return type(undisturbed)(recipe=undisturbed.recipe, workspace=tmp_path / "runs")


def start(project, ranks: tuple[str, ...] = RANKS) -> subprocess.Popen[str]:
    command = project.command("train", *ranks)
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ)


def running(project, process: subprocess.Popen[str], steps: int) -> list[psutil.Process]:
    """The ranks, once a step of this number is logged."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        for path in project.workspace.glob("train-*.partial/events.jsonl"):
            if f'"step": {steps}' in path.read_text(errors="replace"):
                below = psutil.Process(process.pid).children(recursive=True)
                return [each for each in below if "spawn_main" in " ".join(each.cmdline())]
        time.sleep(0.02)
    raise AssertionError(f"no step {steps}: {process.communicate()[1]}")


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=30)
    return not alive


def goes_on_to_the_same_bits(project, undisturbed) -> bool:
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stderr
    return weights(project) == weights(undisturbed)


def test_two_ranks_learn_what_one_learns(undisturbed, begun, project) -> None:
    alone = type(begun)(recipe=begun.recipe, workspace=begun.workspace)
    done = project.call("train", *RANKS[:1], "train.duration=12 steps")
    assert done.returncode == 0, done.stderr
    losses = [
        json.loads((each.artifact("train") / "summary.json").read_text())["validation"]["metrics"]["loss"]["value"]
        for each in (project, alone)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_killed_rank_is_named_and_ends_the_others(project, undisturbed) -> None:
    process = start(project)
    ranks = running(project, process, 20)
    assert len(ranks) == 2
    ranks[1].kill()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 5, said
    assert "ended by SIGKILL; all ranks were ended" in said
    assert "Traceback" not in said
    assert gone(ranks)
    assert goes_on_to_the_same_bits(project, undisturbed)


def test_ranks_end_with_the_process_that_started_them(project, undisturbed) -> None:
    process = start(project)
    ranks = running(project, process, 20)
    process.kill()
    process.communicate()
    assert gone(ranks)
    assert goes_on_to_the_same_bits(project, undisturbed)


def losses(project) -> tuple[float, float]:
    """The mean of the last 20 updates, and the last validation."""
    summary = json.loads((project.artifact("train") / "summary.json").read_text())
    return summary["train_loss"], summary["validation"]["metrics"]["loss"]["value"]


def test_a_checkpoint_goes_on_in_another_layout(project, undisturbed) -> None:
    for layout, steps in ((("train.exec.layout.tp=2",), 10), (("train.exec.layout.pp=1",), 20)):
        process = start(project, (*layout, *RANKS[1:]))
        running(project, process, steps)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 143, said
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stderr
    assert losses(project) == pytest.approx(losses(undisturbed), rel=1e-3)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_polite_stop_saves_and_says_how_to_go_on(project, undisturbed, number, code) -> None:
    process = start(project)
    ranks = running(project, process, 20)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert f"stopped by {signal.Signals(number).name} after step" in said
    assert "run the same command to go on from there" in said
    assert "Traceback" not in said
    assert gone(ranks)
    assert goes_on_to_the_same_bits(project, undisturbed)
