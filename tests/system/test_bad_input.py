"""What goes wrong in the middle of a run is one line and its exit code on the command line, and nothing is lost."""

from __future__ import annotations

import pytest

from trainwright.artifact.checkpoint.index import step_of

pytestmark = pytest.mark.slow

READY = ("doctor", "plan", "data")


def the_error(done, code: int) -> str:
    """The one line that says what is wrong."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert done.stderr.endswith(f"{line}\n")
    return line


def test_a_loss_that_is_no_number_names_the_last_good_checkpoint(fork) -> None:
    project = fork("nan", READY)
    rates = ("train.optimizer.lr=1e30", "train.clip_norm=null", "train.exec.checkpoint_every=1e-9 s")
    line = the_error(project.call("train", *rates), 5)
    (partial,) = project.workspace.glob("train-*.partial")
    faulty = int(line.partition(" by step ")[2].partition(" ")[0])
    good = [path for path in sorted((partial / "checkpoints").iterdir()) if step_of(path) < faulty - 1]
    assert line.count("model.init_from=") == len(good[-1:]), "one that an update was made from"
    assert all(f"model.init_from={path} " in line for path in good[-1:])


def test_a_sequence_longer_than_the_split_says_what_to_lower(fork) -> None:
    project = fork("long", READY)
    sizes = [f"{key}=1000000" for key in ("model.context_tokens", "train.sequence_tokens", "train.batch_tokens")]
    line = the_error(project.call("train", *sizes), 4)
    assert "the train split is shorter than one sequence" in line
    assert "lower train.sequence_tokens" in line


def test_damaged_weights_are_named_and_neither_measured_nor_exported(fork) -> None:
    project = fork("weights", (*READY, "train"))
    path = project.artifact("train") / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    for command in ("evaluate", "export"):
        line = the_error(project.call(command), 4)
        assert f"{path}: damaged file: its sha256" in line
        assert f"delete {path.parent}" in line
