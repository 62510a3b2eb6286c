"""Variables that torch and numpy read when they are imported: set before, where the user has not set them."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path

SPIN_COUNT = "10000"
"""Rounds of GNU OpenMP's waiting loop, some tens of microseconds; its own default is 300,000."""
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
SLOW = "torch_tpu"
"""Where it is installed, every ``import torch`` takes 4 to 5 s in place of 1.5 s, and each process pays that."""
DEVICE_FILES = ("dev/accel[0-9]*", "dev/vfio/[0-9]*")
"""What a system with a TPU shows (``catalog/accelerators/tpu.toml``)."""


def wait_briefly(environ: MutableMapping[str, str]) -> None:
    """Let waiting OpenMP threads sleep soon: torch's CPU kernels meet at a barrier thousands of times a second.

    A thread that spins uses up its share of a core, so that beside other busy processes the scheduler lets the thread
    it waits for wait in turn. Measured on two cores (``benchmarks/openmp_wait.py``): a training step takes 116 to
    120 ms alone either way; beside two busy processes 258 to 431 ms, with the default 350 to 6,443 ms.
    """
    if "OMP_WAIT_POLICY" not in environ:
        environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


def start_no_threads(environ: MutableMapping[str, str]) -> None:
    """Let numpy's OpenBLAS start no threads, for a process that multiplies no matrices.

    Each new one spins for some tens of milliseconds before it sleeps, which is a tenth of a plan's processor time.
    """
    environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def spare_autoload(environ: MutableMapping[str, str], root: Path = Path("/")) -> None:
    """Let torch load no backend by itself where torch_tpu is installed and there is no TPU, unless the user says so.

    A backend that is there all the same is loaded by name when its device is looked for.

    Args:
        environ: of this process and those that it will start.
        root: of the file system.
    """
    if AUTOLOAD in environ or find_spec(SLOW) is None:
        return
    if not any(next(root.glob(pattern), None) for pattern in DEVICE_FILES):
        environ[AUTOLOAD] = "0"
