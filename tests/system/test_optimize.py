"""The ladder of a tiny recipe, from the command line: interrupted, taken up, printed, drawn, and trained from."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow

KEYS = ("optimize.techniques=[fused-update]", "optimize.steps=6", "optimize.warmup_steps=1", "train.exec.threads=1")


def test_a_ladder_is_interrupted_and_goes_on(make_project, tmp_path) -> None:
    project = make_project()
    assert project.call("data").returncode == 0
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(project.command("optimize", *KEYS), text=True, **pipes)
    deadline = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < deadline:
        if any(project.workspace.glob("optimize-*.partial/rungs")):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1].endswith("interrupted; run the same command to continue")
    assert "Traceback" not in errors
    answer = project.json("optimize", *KEYS, "--draw", str(tmp_path / "ladder.svg"))
    assert answer["schema"] == "trainwright.optimize/1"
    (rung,) = answer["ladder"]["rungs"]
    assert rung["technique"] == "fused-update" and len(rung["with_it"]["step_s"]) == 6
    assert rung["before"]["losses"] == rung["after"]["losses"], "the same configuration, the same bits"
    assert rung["loss_difference"] < rung["tolerance"]
    assert (tmp_path / "ladder.svg").stat().st_size > 0
    shown = [sys.executable, "-m", "trainwright", "config", "show", answer["tuned"]]
    tuned = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    assert f"update: {answer['ladder']['tuned'].get('train.exec.update', 'fused')}" in tuned, "fused as given"
    again = project.json("optimize", *KEYS)
    assert again["ladder"] == answer["ladder"], "nothing is measured twice"
