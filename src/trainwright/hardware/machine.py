"""Facts about this machine that need no torch: system, processor, memory, disk, GPUs, compiler, packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import struct
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainwright.core.fingerprint import digest
from trainwright.hardware import cgroup
from trainwright.hardware.nvidia import Gpu, gpus
from trainwright.hardware.processor import cpu_features, cpu_model

BUSY_INTERVAL_S = 0.25
"""How long the processors are watched to see what others use of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFacts:
    """What a machine is, as its operating system says; sizes in bytes, no measurement in it.

    ``cores`` are the physical cores that this process may use: affinity and container limits are respected.
    ``cpu_busy`` is the share of the processors that other work used just before.
    ``memory_available_bytes`` is what can still be taken without swapping or exceeding the container's limit.
    """

    system: str
    release: str
    architecture: str
    bits: int
    python: str
    torch: str | None
    cpu: str
    cores: int
    logical_cores: int
    cpu_features: tuple[str, ...]
    cpu_busy: float
    memory_bytes: int
    memory_available_bytes: int
    disk_path: str
    disk_free_bytes: int
    compiler: str | None
    python_headers: bool
    gpus: tuple[Gpu, ...] = ()


def gather(disk_path: Path, *, watch_s: float = BUSY_INTERVAL_S) -> MachineFacts:
    """The facts of this machine.

    Args:
        disk_path: where artefacts will be written; it need not exist yet.
        watch_s: how long to watch what others use of the processors; 0 does not look.
    """
    total, available = _memory()
    cores, logical = _cores()
    existing = next(path for path in (disk_path.absolute(), *disk_path.absolute().parents) if path.exists())
    return MachineFacts(
        system=platform.system(),
        release=platform.release(),
        architecture=platform.machine(),
        bits=struct.calcsize("P") * 8,
        python=platform.python_version(),
        torch=_version("torch"),
        cpu=cpu_model(),
        cores=cores,
        logical_cores=logical,
        cpu_features=cpu_features(),
        cpu_busy=psutil.cpu_percent(interval=watch_s) / 100 if watch_s else 0.0,
        memory_bytes=total,
        memory_available_bytes=available,
        disk_path=str(existing),
        disk_free_bytes=shutil.disk_usage(existing).free,
        compiler=next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None),
        python_headers=(Path(sysconfig.get_paths()["include"]) / "Python.h").is_file(),
        gpus=gpus(),
    )


def machine_digest() -> str:
    """Changes when a measurement would: another processor, core count, memory size, GPU, driver, torch or Python."""
    total, _ = _memory()
    return digest(
        {
            "system": platform.system(), "release": platform.release(), "architecture": platform.machine(),
            "cpu": cpu_model(), "features": cpu_features(), "cores": _cores(), "memory_gib": round(total / 2**30),
            "torch": _version("torch"), "python": platform.python_version(),
            "gpus": [(gpu.name, gpu.memory_bytes, gpu.driver) for gpu in gpus()],
        }
    )  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> tuple[int, int]:
    host = psutil.virtual_memory()
    limit = cgroup.memory_limit_bytes()
    if limit is None or limit >= host.total:
        return host.total, host.available
    used = cgroup.memory_used_bytes() or 0
    return limit, min(host.available, max(0, limit - used))


def _cores() -> tuple[int, int]:
    logical_on_host = psutil.cpu_count(logical=True) or 1
    physical_on_host = psutil.cpu_count(logical=False) or logical_on_host
    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical_on_host
    physical = max(1, logical * physical_on_host // logical_on_host)
    quota = cgroup.cpu_limit()
    return (physical if quota is None else max(1, min(physical, int(quota)))), logical
