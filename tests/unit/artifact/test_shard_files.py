from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from trainwright.artifact.shard_files import open_shard, token_dtype
from trainwright.artifact.shard_writer import write_shard
from trainwright.core.errors import MachineError


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    ends = np.array([1], np.uint64)
    with pytest.raises(MachineError, match="the disk is full"):
        write_shard(tmp_path / "a", [np.array([1], np.uint16)], ends, ends)
    assert list(tmp_path.iterdir()) == []


def test_a_shard_written_is_the_shard_opened(tmp_path):
    ends, sizes = np.array([2, 3], np.uint64), np.array([7, 0], np.uint64)
    write_shard(tmp_path / "a", [np.array([5, 6], np.uint16), np.array([7], np.uint16)], ends, sizes)
    shard = open_shard(tmp_path / "a", token_dtype(300))
    assert (shard.tokens.tolist(), shard.ends.tolist(), shard.text_bytes.tolist()) == ([5, 6, 7], [2, 3], [7, 0])
