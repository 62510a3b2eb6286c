"""Killed at any moment with SIGKILL, or asked to stop, a run ends in the weights of one that nobody disturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.ranks import weights
from trainwright.artifact.store import open_artifact

pytestmark = pytest.mark.slow

READY = ("doctor", "plan", "data")


def start(project) -> subprocess.Popen[str]:
    return subprocess.Popen(
        project.command("train"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ
    )


def wait_for_steps(project, process: subprocess.Popen[str], steps: int) -> None:
    """Until the run's event file tells of this step, or the run has ended."""
    deadline = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < deadline:
        for path in project.workspace.glob("train-*.partial/events.jsonl"):
            if f'"step": {steps}' in path.read_text(errors="replace"):
                return
        time.sleep(0.02)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kill_nine_at_random_moments(finished, fork, seed) -> None:
    project, dice = fork("killed", READY), random.Random(seed)
    kills = 0
    for _ in range(3):
        process = start(project)
        wait_for_steps(project, process, dice.choice([10, 20, 40, 60, 90]))
        time.sleep(dice.uniform(0, 0.3))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.communicate()
    assert kills >= 1
    done = project.call("train")
    assert done.returncode == 0, done.stderr
    assert weights(project) == weights(finished)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_polite_stop_says_how_to_go_on(finished, fork, number, code) -> None:
    project = fork("stopped", READY)
    process = start(project)
    wait_for_steps(project, process, 20)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert f"stopped by {number.name} after step" in said
    assert "run the same command to go on from there" in said
    assert "Traceback" not in said
    done = project.call("train")
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stderr
    assert weights(project) == weights(finished)


def test_under_nohup_a_closed_terminal_stops_nothing(finished, fork) -> None:
    project = fork("nohup", READY)
    command = ["nohup", *project.command("train")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_for_steps(project, process, 20)
        os.kill(process.pid, signal.SIGHUP)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "SIGHUP" not in said
    assert weights(project) == weights(finished)


def test_only_one_process_works_on_an_artefact(fork) -> None:
    project = fork("twice", READY)
    first = start(project)
    wait_for_steps(project, first, 10)
    second = project.call("train")
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert second.returncode == 3
    assert "another process is working on train" in second.stderr


def test_a_kill_in_any_stage_loses_nothing(finished, fork, tmp_path: Path) -> None:
    """The whole run, killed every few seconds, from the machine's facts on."""
    project = fork("whole", ("doctor", "plan"))
    dice = random.Random(4)
    for _ in range(6):
        process = subprocess.Popen(project.command("run"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(1.0, 4.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = project.call("run")
    assert done.returncode == 0, done.stderr
    assert weights(project) == weights(finished)
    assert not list(project.workspace.glob("*.partial"))


def test_sigterm_ends_any_stage_with_one_line_and_no_orphans(finished, tmp_path: Path) -> None:
    """While the machine is measured by a process of its own."""
    project = type(finished)(recipe=finished.recipe, workspace=tmp_path / "terminated")
    process = subprocess.Popen(
        project.command("doctor"),
        env={**os.environ, "TRAINWRIGHT_HOME": str(tmp_path / "home")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert said.splitlines()[-1] == "error: terminated; run the same command to continue"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


KILLED = """
import os, signal, sys
from trainwright.cli.main import main
name, *arguments = sys.argv[1:]
fsync = os.fsync
def killing(handle):
    if name in os.readlink(f"/proc/self/fd/{handle}"):
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(handle)
os.fsync = killing
sys.exit(main(arguments))
"""


def kill_while_writing(project, stage: str, name: str) -> None:
    """Kills a command where the bytes of a file whose path holds ``name`` are written, and the file is not."""
    _, _, _, *arguments = project.command(stage)
    done = subprocess.run([sys.executable, "-c", KILLED, name, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert any(name in str(path) for path in project.workspace.rglob("*"))


def left_over(project) -> list[Path]:
    """What no artefact and no later run has a use for."""
    return [path for path in project.workspace.rglob(".*") if not path.match("*.lock") and path.name != ".checked"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not tell the name of an open file")
@pytest.mark.parametrize("name", ["huggingface/.tokenizer.json.", "huggingface/.README.md.", "/.manifest.json."])
def test_a_kill_while_an_export_is_written_changes_no_byte_of_it(finished, fork, name) -> None:
    project = fork("killed", (*READY, "train"))
    for _ in range(2):
        kill_while_writing(project, "export", name)
    done = project.call("export")
    assert done.returncode == 0, done.stderr
    ours, undisturbed = (open_artifact(each.artifact("export")) for each in (project, finished))
    assert ours.manifest.files == undisturbed.manifest.files
    assert ours.path.name == undisturbed.path.name
    assert left_over(project) == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not tell the name of an open file")
@pytest.mark.parametrize(
    ("stage", "name"), [("train", "/.state.json."), ("train", "/.checkpoint.json."), ("data", "/.corpus-digests.json.")]
)
def test_a_kill_leaves_no_half_checkpoint_and_nothing_beside_the_artefacts(finished, fork, stage, name) -> None:
    project = fork("killed", READY[: READY.index("data") + (stage == "train")])
    for _ in range(2):
        kill_while_writing(project, stage, name)
    done = project.call(stage)
    assert done.returncode == 0, done.stderr
    assert left_over(project) == []
    if stage == "train":
        assert weights(project) == weights(finished)
        (trained,) = project.workspace.glob("train-*")
        assert all((step / "checkpoint.json").is_file() for step in (trained / "checkpoints").iterdir())
    else:
        assert open_artifact(project.artifact("data")).digest() == open_artifact(finished.artifact("data")).digest()
