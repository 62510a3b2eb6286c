"""Tensors in safetensors files, with every failure as one clear line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainwright.artifact.store import disk_full
from trainwright.core.errors import DataError, MachineError

_GONE = re.compile(r"(?:os error|Errno) (?:5|116|107|110|112)\b")
"""EIO, ESTALE, ENOTCONN, ETIMEDOUT, EHOSTDOWN: a network file system whose server is lost."""
_FULL = re.compile(r"(?:os error|Errno) (?:27|28|122)\b")
"""EFBIG, ENOSPC and EDQUOT, as the Rust library and Python report them."""


def save_weights(path: Path, weights: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file that is whole or absent, with the mode that the umask gives; one process at a time.

    Raises:
        MachineError: the disk is full, or the place cannot be written.
    """
    contiguous = {name: weight.contiguous() for name, weight in weights.items()}
    # The library gives its half-written file a random name, which is found after a kill only in a folder of its own.
    folder = path.with_name(f".{path.name}.tmp")
    half = folder / path.name
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            save_file(contiguous, half, metadata=None if metadata is None else dict(metadata))
            half.chmod(folder.stat().st_mode & 0o666)  # the library makes files that their owner alone reads
            half.replace(path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except (SafetensorError, OSError) as error:
        if _FULL.search(str(error)):
            raise disk_full(path) from error
        fix = "choose another place with `workspace`"
        if _GONE.search(str(error)):
            fix = "mount the file system again and run the same command"
        raise MachineError(
            "cannot write the weights", where=path, field="workspace", seen=str(error), fix=fix
        ) from error


def load_weights(path: Path, *, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Read the tensors of a file.

    Args:
        path: the file.
        device: where to put them; on ``meta`` they have no values, and the header alone is read.

    Raises:
        DataError: it is missing or damaged.
    """
    if not path.is_file():  # a named pipe would be waited for
        raise DataError("the weights are missing", where=path)
    try:
        # The library maps the file: a tensor on the CPU is read when it is used.
        return {name: weight.to(device) for name, weight in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise DataError("cannot read the weights", where=path, seen=str(error)) from error
