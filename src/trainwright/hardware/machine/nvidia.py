"""NVIDIA GPUs as their driver reports them, through ``nvidia-smi``."""

from __future__ import annotations

import re
import shutil
import subprocess

from trainwright.core.frozen import dataclass

_FIELDS = ("name", "memory.total", "memory.free", "compute_cap", "driver_version")
_TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU; ``cuda`` is the newest CUDA version that its driver supports."""

    name: str
    memory_bytes: int
    memory_free_bytes: int
    compute_capability: str
    driver: str
    cuda: str


def gpus() -> tuple[Gpu, ...]:
    """Returns the GPUs of this machine; none where there is no driver, or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    listing = _output(program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
    return parse(listing, banner=_output(program)) if listing else ()


def parse(listing: str, *, banner: str) -> tuple[Gpu, ...]:
    """Returns GPUs from the rows of nvidia-smi's query (MiB without units) and the CUDA version of its banner."""
    version = re.search(r"CUDA Version:\s*([0-9.]+)", banner)
    devices = []
    for line in listing.strip().splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(_FIELDS) and values[1].isdigit() and values[2].isdigit():
            name, total, free, capability, driver = values
            devices.append(
                Gpu(
                    name=name,
                    memory_bytes=int(total) << 20,
                    memory_free_bytes=int(free) << 20,
                    compute_capability=capability,
                    driver=driver,
                    cuda=version[1] if version else "",
                )
            )
    return tuple(devices)


def _output(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (
        OSError,
        subprocess.TimeoutExpired,
    ):  # a driver that hangs or cannot start is a machine without a usable GPU
        return ""
    return done.stdout if done.returncode == 0 else ""
