"""Keeps ``import torch`` from loading a backend whose device is not here."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"
SLOW = "torch_tpu"
"""Where it is installed, every ``import torch`` takes 4 to 5 s in place of 1.5 s, and each process pays that."""
DEVICE_FILES = ("dev/accel[0-9]*", "dev/vfio/[0-9]*")
"""What a system with a TPU shows (``catalog/accelerators/tpu.toml``)."""


def spare_autoload(environ: MutableMapping[str, str], root: Path = Path("/")) -> None:
    """Let torch load no backend by itself where torch_tpu is installed and there is no TPU, unless the user says so.

    Works only before torch is imported. A backend that is there all the same is loaded by name when its device is
    looked for.

    Args:
        environ: of this process and those that it will start.
        root: of the file system.
    """
    if VARIABLE in environ or find_spec(SLOW) is None:
        return
    if not any(next(root.glob(pattern), None) for pattern in DEVICE_FILES):
        environ[VARIABLE] = "0"
