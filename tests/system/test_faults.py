"""Four ranks, one of which is stopped, killed, slowed or breaks: it is named, all end, and the job goes on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time

import psutil
import pytest

from fixtures.ranks import all_gone, files_left_of, left_of, ranks_by_number, started, wait_for_step, weights
from trainwright.artifact.events import read_events

pytestmark = pytest.mark.slow

RANKS = (
    "train.exec.layout.dp_shard=4",
    "train.batch_tokens=256",
    "train.duration=60 steps",
    "train.exec.checkpoint_every=0.5",
    "train.exec.hang_after=3s",
    "train.optimizer.name=adamw",
)


@pytest.fixture(scope="module")
def undisturbed(make_project):
    project = make_project()
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def project(undisturbed, tmp_path):
    return type(undisturbed)(recipe=undisturbed.recipe, workspace=tmp_path / "runs")


def start(project, *more: str) -> subprocess.Popen[str]:
    return started(project, *RANKS, *more)


def ranks_of(project, process: subprocess.Popen[str], step: int) -> dict[int, psutil.Process]:
    """The ranks by number, once a step of this number is logged."""
    wait_for_step(project, process, step)
    return ranks_by_number(project)


def ended(process: subprocess.Popen[str], ranks: dict[int, psutil.Process]) -> str:
    _, said = process.communicate(timeout=600)
    assert process.returncode == 5, said
    assert "Traceback" not in said
    assert all_gone(list(ranks.values()))
    return said


def test_a_stopped_rank_is_named_with_its_place_and_stack(project) -> None:
    process = start(project)
    ranks = ranks_of(project, process, 20)
    ranks[2].send_signal(signal.SIGSTOP)
    said = ended(process, ranks)
    where = r"in (\w+ of |\w+ after |)step \d+, last collective gloo:\w+"  # it may stand between two phases
    assert re.search(rf"rank 2 on \S+ hangs: it says nothing for .*, {where}", said)
    assert re.search(r"seen .*\.py\", line \d+ in \w+", said)
    (stacks,) = project.workspace.glob("train-*.partial/.stacks")
    assert len(list(stacks.iterdir())) == 4
    assert "run the same command again" in said


def test_a_killed_rank_restarts_the_job_to_the_same_bits(project, undisturbed) -> None:
    began_s = time.monotonic()
    process = start(project, "train.exec.max_restarts=1")
    ranks = ranks_of(project, process, 30)
    ranks[1].kill()
    _, said = process.communicate(timeout=600)
    took_s = time.monotonic() - began_s
    assert process.returncode == 0, said
    assert re.search(
        r"rank 1 on \S+ ended by SIGKILL, last heard in [\w ]*step \d+.*restart 1 of 1 from step \d+", said
    )
    assert all_gone(list(ranks.values()))
    assert not files_left_of(project)
    assert weights(project) == weights(undisturbed)
    log = project.artifact("train") / "events.jsonl"
    (restart,) = [event for event in read_events(log) if event.kind == "restart"]
    assert 0 <= restart.value < 200
    assert restart.unit == "s"
    summary = json.loads((project.artifact("train") / "summary.json").read_text())
    assert summary["execution"]["restarts"] == 1
    goodput, lines = summary["goodput"], [json.loads(line) for line in log.read_text().splitlines()]
    told_s = lines[-1]["t_s"] - lines[0]["t_s"]  # two starts of the ranks are in it, but that before the first line
    assert told_s < goodput["wall_s"] + 0.5 and goodput["wall_s"] < took_s
    assert goodput["share"] == pytest.approx(goodput["steps_s"] / goodput["wall_s"])


def test_a_rank_that_breaks_is_named_with_what_it_says(project) -> None:
    process = start(project, "train.optimizer.name=fixtures.faulty_optimizer:breaks")
    _, said = process.communicate(timeout=600)
    assert process.returncode == 5, said
    assert re.search(r"rank 3 on \S+ ended with exit code 1, .*seen .*made to break, at .*faulty_optimizer", said)
    assert not left_of(project)
    assert not files_left_of(project)


def test_a_rank_that_fails_again_at_once_is_left_out(project, undisturbed) -> None:
    process = start(
        project,
        "train.optimizer.name=fixtures.faulty_optimizer:fourth_is_gone",
        "train.exec.max_restarts=2",
        "train.exec.elastic=true",
    )
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "rank 3 is gone: going on with 3 ranks" in said
    one, other = (json.loads((each.artifact("train") / "summary.json").read_text()) for each in (project, undisturbed))
    assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-3)
    assert one["execution"]["restarts"] == 2


def test_a_slow_rank_is_named_and_goes_on(project, undisturbed) -> None:
    process = start(project, "train.optimizer.name=fixtures.faulty_optimizer:slow", "train.exec.checkpoint_every=0")
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert re.search(r"rank 2 on \S+ falls behind: it needs [\d.]+ times the others' time", said)
    assert len(re.findall("rank 2 on .* falls behind", said)) == 1
