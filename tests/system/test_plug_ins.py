"""A plug-in that raises in the middle of training is named in one line, which is no defect of ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
MODULE = "fixtures.failing_plug_ins"
STEPS = f"""
stages:
  - {{name: base, stage: train}}
  - name: tuned
    stage: train
    from: base
    train:
      optimizer:
        name: {MODULE}:stumbling
"""


def test_a_step_s_own_plug_in_is_blamed_at_the_line_of_the_step(make_project, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
    project = make_project(STEPS)
    done = project.call("run", "train.duration=5 steps")
    assert done.returncode == 2, done.stderr
    number = 1 + project.recipe.read_text().splitlines().index(f"        name: {MODULE}:stumbling")
    key = f"{project.recipe}:{number}:9: stages.1.train.optimizer.name"
    assert f"error: {key}: the plug-in {MODULE}:stumbling failed (seen RuntimeError: no third step)" in done.stderr


@pytest.mark.parametrize(
    ("key", "name", "seen"),
    [
        ("task.name", "TASK", "IndexError: list index out of range"),
        ("model.family", "NARROW", "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/at/all'"),
        ("train.optimizer.name", "stumbling", "RuntimeError: no third step"),
    ],
)
def test_what_raises_while_training_is_blamed_by_its_key(fork, monkeypatch, key, name, seen) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
    project = fork("plug-in", ("doctor", "data"))
    done = project.call("train", f"{key}={MODULE}:{name}")
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"{key} the plug-in {MODULE}:{name} failed (seen {seen})" in last.replace(": the", " the")
    assert last.startswith("error: ") and last.endswith("; mend it; --debug shows the traceback")
    assert "Traceback" not in done.stderr and "defect" not in done.stderr
