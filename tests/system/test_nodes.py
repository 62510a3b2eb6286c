"""One command on each of two nodes (both this host), or one for each rank: the weights of one command alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.ranks import TESTS, ranks_below, wait_for_step, weights

pytestmark = pytest.mark.slow

KILLED_ONCE = (
    "train.optimizer.name=fixtures.faulty_optimizer:second_is_killed_once",
    "train.exec.checkpoint_every=1 ms",
)
RANKS = ("train.exec.layout.dp_shard=2", "train.duration=12 steps")


@pytest.fixture(scope="module")
def alone(make_project):
    project = make_project()
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def project(alone, tmp_path):
    """The same recipe in a workspace that holds machine and dataset."""
    workspace = tmp_path / "runs"
    for stage in ("doctor", "data"):
        source = alone.artifact(stage)
        shutil.copytree(source, workspace / source.name)
    return type(alone)(recipe=alone.recipe, workspace=workspace)


@pytest.fixture
def endpoint() -> str:
    with socket.socket() as stream:
        stream.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{stream.getsockname()[1]}"


def node(project, endpoint: str, rank: int, *more: str, code: Path | None = None) -> subprocess.Popen[str]:
    """The command of one node, with plug-ins from the folder ``code``."""
    place = ("--nodes", "2", "--node-rank", str(rank), "--rendezvous", endpoint)
    command = project.command("train", *RANKS, *more, *place)
    paths = [str(code)] * (code is not None) + [os.environ.get("PYTHONPATH", "")]
    own = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=own)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=600)
    return process.returncode, said


def test_two_nodes_end_in_the_bits_of_one(project, alone, endpoint) -> None:
    first, second = node(project, endpoint, 0), node(project, endpoint, 1)
    for process in (second, first):
        code, said = ended(process)
        assert code == 0, said
    assert weights(project) == weights(alone)


def test_ranks_of_torchrun_end_in_the_same_bits(project, alone, endpoint) -> None:
    host, _, port = endpoint.partition(":")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*torchrun, "--master-addr", host, "--master-port", port, *project.command("train", *RANKS)[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("train: ") == 1, "the first rank alone prints results"
    assert weights(project) == weights(alone)


def test_tasks_of_srun_end_in_the_same_bits(project, alone, endpoint) -> None:
    """Two processes with the variables of a step: Slurm itself is not here."""
    host, _, port = endpoint.partition(":")
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": host, "SLURM_JOB_ID": "7"}
    tasks = [
        subprocess.Popen(
            project.command("train", *RANKS),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | step | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "MASTER_PORT": port},
        )
        for rank in "01"
    ]
    for process in tasks:
        code, said = ended(process)
        assert code == 0, said
    assert weights(project) == weights(alone)


def test_nodes_with_other_recipes_end_with_the_difference_before_anything_is_made(project, endpoint) -> None:
    before = sorted(path.name for path in project.workspace.iterdir())
    both = node(project, endpoint, 0), node(project, endpoint, 1, "seed=6")
    for code, said in map(ended, both):
        assert code == 2, said
        assert "has another seed than node 0 (seen 6, expected 5 as on" in said
        assert "Traceback" not in said
    assert sorted(path.name for path in project.workspace.iterdir()) == before


def test_nodes_with_other_code_of_one_plug_in_end_with_the_difference(project, endpoint, tmp_path) -> None:
    before = sorted(path.name for path in project.workspace.iterdir())
    both = []
    for rank, rate in enumerate(("1.0 - done", "1.0")):
        folder = tmp_path / f"host{rank}"
        folder.mkdir()
        (folder / "acme_rules.py").write_text(f"def rate(done: float, section: object) -> float:\n    return {rate}\n")
        both.append(node(project, endpoint, rank, "train.schedule.name=acme_rules:rate", code=folder))
    for code, said in map(ended, both):
        assert code == 2, said
        difference = "has another code of plug-in acme_rules:rate than node 0 "
        assert re.search(difference + r"\(seen digest [0-9a-f]{12}, expected digest [0-9a-f]{12} as on \S+\)", said)
        assert len(said.splitlines()) == 1, said
    assert sorted(path.name for path in project.workspace.iterdir()) == before


@pytest.mark.parametrize(
    ("rank", "line"), [(0, "1 of 2 nodes came here within 1 s; absent: 1"), (1, "nobody was here")]
)
def test_a_node_that_nobody_meets_says_so(project, endpoint, rank, line) -> None:
    code, said = ended(node(project, endpoint, rank, "train.exec.rendezvous_timeout=1s"))
    assert code == 3, said
    assert f"error: {endpoint}: {line}" in said
    assert len(said.splitlines()) == 1, said


def test_a_node_ends_when_the_first_one_is_killed(make_project, endpoint) -> None:
    project = make_project()
    first, second = node(project, endpoint, 0), node(project, endpoint, 1)
    deadline = time.monotonic() + 600
    while not project.workspace.is_dir() and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)  # it is made once the two have met
    first.send_signal(signal.SIGKILL)
    first.communicate()
    code, said = ended(second)
    assert code == 5, said
    assert "the command of node 0 went away" in said
    assert "Traceback" not in said


LONGER = ("train.duration=120 steps", "train.exec.checkpoint_every=0.2", "train.exec.hang_after=3s")


def test_nodes_restart_together_where_a_rank_of_one_is_killed(project, alone, endpoint) -> None:
    keys = ("train.exec.max_restarts=1", "train.exec.checkpoint_every=1 ms", "train.exec.log_every_steps=1")
    first, second = node(project, endpoint, 0, *keys), node(project, endpoint, 1, *keys)
    wait_for_step(project, first, 3)
    (rank,) = ranks_below(second)
    rank.kill()
    for process in (second, first):
        code, said = ended(process)
        assert code == 0, said
    assert re.search(r"rank 1 on \S+ ended by SIGKILL.*; restart 1 of 1 from step \d+", said)
    assert weights(project) == weights(alone)


def test_a_node_that_is_gone_is_left_out_where_the_recipe_says_so(project, alone, endpoint) -> None:
    keys = (
        "train.exec.max_restarts=1",
        "train.exec.elastic=true",
        "train.exec.checkpoint_every=1 ms",
        "train.exec.log_every_steps=1",
    )
    first, second = node(project, endpoint, 0, *keys), node(project, endpoint, 1, *keys)
    wait_for_step(project, first, 3)
    gone = [*ranks_below(second), second]
    for process in gone:
        process.send_signal(signal.SIGKILL)
    second.communicate()
    code, said = ended(first)
    assert code == 0, said
    assert re.search(r"no word any more of the command of node 1 on \S+; .*; restart 1 of 1 from step \d+", said)
    assert "node 1 is gone: going on with 1 rank" in said
    one, other = (json.loads((each.artifact("train") / "summary.json").read_text()) for each in (project, alone))
    assert one["steps"] == other["steps"]
    assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)


def test_a_stopped_rank_of_another_node_is_named_by_both(project, endpoint) -> None:
    first, second = node(project, endpoint, 0, *LONGER), node(project, endpoint, 1, *LONGER)
    wait_for_step(project, first, 20)
    (rank,) = ranks_below(second)
    rank.send_signal(signal.SIGSTOP)
    for process in (first, second):
        code, said = ended(process)
        assert code == 5, said
        assert re.search(r"rank 1 on \S+ hangs: it says nothing for", said)
        assert "Traceback" not in said
    assert not rank.is_running()


def test_torchrun_begins_again_and_the_ranks_go_on(project, endpoint) -> None:
    host, _, port = endpoint.partition(":")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    command = project.command("train", *RANKS, *KILLED_ONCE, "train.exec.max_restarts=1")
    done = subprocess.run(
        [*torchrun, "--master-addr", host, "--master-port", port, *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 0, done.stderr
    assert (
        "torchrun starts the ranks, so that train.exec.max_restarts does nothing: torchrun --max-restarts 1"
        in done.stderr
    )
    assert "resuming from step" in done.stderr


def test_another_number_of_processes_than_ranks_is_refused_before_they_meet(project) -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    command = project.command("train", *RANKS)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=os.environ | rank)
    assert done.returncode == 2, done.stderr
    assert "another number of processes than the layout has ranks (seen 3, expected 2)" in done.stderr
