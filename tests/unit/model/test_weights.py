from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import torch

from trainwright.core.errors import DataError, MachineError
from trainwright.model.weights import load_weights, save_weights

FULL = """
import resource, signal, sys
from pathlib import Path
import torch
from trainwright.model.weights import save_weights
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    save_weights(Path(sys.argv[1]), {"a": torch.ones(100_000)})
except Exception as error:
    print(type(error).__name__, error)
"""


def test_there_and_back_also_of_views(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    weights = {"transposed": whole.T, "low": whole.to(torch.bfloat16)}
    save_weights(tmp_path / "w", weights, metadata={"format": "pt"})
    found = load_weights(tmp_path / "w")
    assert all(torch.equal(found[name], weight) for name, weight in weights.items())
    headers = load_weights(tmp_path / "w", device="meta")
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in headers.items()} == {
        name: (weight.shape, weight.dtype) for name, weight in weights.items()
    }
    assert all(tensor.is_meta for tensor in headers.values())


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077], ids=oct)
def test_a_file_has_the_mode_of_the_files_beside_it(tmp_path, umask):
    before = os.umask(umask)
    try:
        save_weights(tmp_path / "w", {"a": torch.ones(1)})
        save_weights(tmp_path / "w", {"a": torch.ones(2)})  # in the place of another
        (tmp_path / "beside").write_bytes(b"")
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "w": 0o666 & ~umask,
        "beside": 0o666 & ~umask,
    }


def test_a_full_disk_is_one_line_and_leaves_no_half_file(tmp_path):
    command = [sys.executable, "-c", FULL, str(tmp_path / "w")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"MachineError {tmp_path / 'w'}: the disk is full; free some space")
    assert not (tmp_path / "w").exists()


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(MachineError, match=r"nowhere/w: cannot write the weights .*; choose another place"):
        save_weights(tmp_path / "nowhere" / "w", {"a": torch.ones(1)})


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(DataError, match="w: the weights are missing"):
        load_weights(tmp_path / "w")
    (tmp_path / "w").write_bytes(b"\x00" * 20)
    with pytest.raises(DataError, match="w: cannot read the weights"):
        load_weights(tmp_path / "w")


def test_a_kill_inside_the_library_leaves_what_the_next_writer_takes(tmp_path):
    killed = FULL.replace("signal.SIG_IGN", "signal.SIG_DFL")  # the system kills the process at the 4096th byte
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", killed, str(tmp_path / "w")], check=False)
        assert done.returncode == -signal.SIGXFSZ
        assert not (tmp_path / "w").exists()
    save_weights(tmp_path / "w", {"a": torch.ones(2)})
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    assert torch.equal(load_weights(tmp_path / "w")["a"], torch.ones(2))
