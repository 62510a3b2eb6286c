"""A checkpoint that cannot be written, and a clock that is set: earlier checkpoints stay, and nothing else minds."""

from __future__ import annotations

import errno
import os
import time

import pytest

from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.core.errors import MachineError

EACH = 1e-9


@pytest.mark.parametrize(
    ("code", "line"), [(errno.ENOSPC, "the disk is full"), (errno.EIO, "mount"), (errno.ESTALE, "mount")]
)
def test_a_write_that_fails_is_one_line_and_earlier_checkpoints_stay(
    code, line, make_recipe, inputs_for, train, tmp_path, monkeypatch
) -> None:
    recipe = make_recipe(exec_checkpoint_every=EACH)
    inputs, synced = inputs_for(recipe), os.fsync
    calls = iter(range(10_000))

    def failing(handle) -> None:
        if next(calls) > 12:
            raise OSError(code, os.strerror(code))
        synced(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(MachineError, match=line) as raised:
            train(recipe, inputs, tmp_path / "out")
    assert raised.value.exit_code == 3
    assert "\n" not in str(raised.value)
    kept = sorted((tmp_path / "out" / "checkpoints").glob("step-*"))
    assert kept
    for path in kept:
        reader = CheckpointReader(path)
        assert not list(reader.damages(sorted(reader.index.files)))
    said: list[str] = []
    train(recipe, inputs, tmp_path / "out", (lambda event: said.append(event.text),))
    assert any("resuming from step" in text for text in said)


def test_a_clock_that_is_set_back_changes_nothing(make_recipe, inputs_for, train, tmp_path, monkeypatch) -> None:
    recipe = make_recipe(exec_checkpoint_every=EACH)
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "expected")
    hours = iter(range(1_000_000))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600 * next(hours))
    train(recipe, inputs, tmp_path / "out")
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "expected"))
    assert one == other
