"""Two processes train as one command: killed or stopped at any moment, they end in the weights of a quiet run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import psutil
import pytest

from fixtures.ranks import all_gone, ranks_below, started, wait_for_step, weights

pytestmark = pytest.mark.slow

RANKS = ("train.exec.layout.dp_shard=2", "train.duration=40 steps", "train.exec.checkpoint_every=0.2")


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


def running(project, process: subprocess.Popen[str], steps: int) -> list[psutil.Process]:
    """The ranks, once a step of this number is logged."""
    wait_for_step(project, process, steps)
    return ranks_below(process)


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


def test_two_ranks_stop_early_together(make_project) -> None:
    """The loss falls, so that the first validation has the most: the third one ends the run."""
    project = make_project()
    stopping = ("train.early_stopping={patience: 2, by: max loss}", "train.validation.every_steps=2")
    done = project.call("train", *RANKS, *stopping)
    assert done.returncode == 0, done.stderr
    summary = json.loads((project.artifact("train") / "summary.json").read_text())
    assert (summary["steps"], summary["early_stopping"]) == (6, {"planned_steps": 40, "result_step": 2})
    assert summary["validation"]["metrics"]["loss"]["value"] == pytest.approx(summary["best"]["value"], rel=1e-6)


def test_a_killed_rank_is_named_and_ends_the_others(project, undisturbed) -> None:
    process = started(project, *RANKS)
    ranks = running(project, process, 20)
    assert len(ranks) == 2
    ranks[1].kill()
    _, said = process.communicate(timeout=600)
    assert process.returncode == 5, said
    # Ranks say where they are once in a while: one that is fast is killed before it has said any step.
    place = r"(last heard in [\w ]*step \d+|before its first step)"
    assert re.search(rf"rank \d on \S+ ended by SIGKILL, {place}.*; all ranks were ended", said)
    assert "Traceback" not in said
    assert all_gone(ranks)
    assert goes_on_to_the_same_bits(project, undisturbed)


def test_ranks_end_with_the_process_that_started_them(project, undisturbed) -> None:
    process = started(project, *RANKS)
    ranks = running(project, process, 20)
    process.kill()
    process.communicate()
    assert all_gone(ranks)
    assert goes_on_to_the_same_bits(project, undisturbed)


def losses(project) -> tuple[float, float]:
    """The mean of the last 20 updates, and the last validation."""
    summary = json.loads((project.artifact("train") / "summary.json").read_text())
    return summary["train_loss"], summary["validation"]["metrics"]["loss"]["value"]


def test_a_checkpoint_goes_on_in_another_layout(project, undisturbed) -> None:
    for layout, steps in ((("train.exec.layout.tp=2",), 10), (("train.exec.layout.pp=1",), 20)):
        process = started(project, *layout, *RANKS[1:])
        running(project, process, steps)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 143, said
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stderr
    assert losses(project) == pytest.approx(losses(undisturbed), rel=1e-3)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_polite_stop_saves_and_says_how_to_go_on(project, undisturbed, number, code) -> None:
    process = started(project, *RANKS)
    ranks = running(project, process, 20)
    process.send_signal(number)
    _, said = process.communicate(timeout=600)
    assert process.returncode == code, said
    assert f"stopped by {signal.Signals(number).name} after step" in said
    assert "run the same command to go on from there" in said
    assert "Traceback" not in said
    assert not re.search(r"\w+\.(py|cpp):\d+\]", said), "torch's own lines"
    assert all_gone(ranks)
    assert goes_on_to_the_same_bits(project, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_polite_signal_while_ranks_start_ends_all_with_one_line(project, number) -> None:
    process = started(project, *RANKS)
    while process.poll() is None and len(ranks := ranks_below(process)) < 2:
        time.sleep(0.02)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # a terminal sends Ctrl-C to the ranks too
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 128 + number, said
    *_, before, line = said.splitlines()
    assert before == "train: started", said
    assert re.fullmatch("error: .*; run the same command to continue", line), said
    assert all_gone(ranks)


def test_two_ranks_learn_of_a_batch_that_grows_what_one_learns(make_project, tmp_path) -> None:
    ramp = (
        "train.batch_ramp=[{batch_tokens: 64, until: 4 steps}]",
        "train.duration=1024 tokens",
        "train.optimizer={name: sgd, lr: 0.3}",  # of AdamW's first steps rounding decides where a gradient is near zero
    )
    project, losses = make_project(), []
    for name, keys in (("alone", ramp), ("two", (*ramp, RANKS[0]))):
        each = type(project)(recipe=project.recipe, workspace=tmp_path / name)
        done = each.call("train", *keys)
        assert done.returncode == 0, done.stderr
        summary = json.loads((each.artifact("train") / "summary.json").read_text())
        assert (summary["steps"], summary["tokens"]) == (10, 1024)
        losses.append(summary["validation"]["metrics"]["loss"]["value"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    refused = project.call("train", *ramp, RANKS[0], "train.batch_ramp.0.batch_tokens=32")
    assert refused.returncode == 2 and "nearest batches 2 sequences" in refused.stderr
