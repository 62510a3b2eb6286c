"""Facts about this machine that need no torch: system, processor, memory, disk, GPUs, compiler, packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import struct
import sysconfig
from functools import cache
from pathlib import Path

import psutil

from trainwright.core.fingerprint import digest
from trainwright.core.frozen import dataclass
from trainwright.core.units import GIB
from trainwright.hardware.machine import cgroup
from trainwright.hardware.machine.nvidia import Gpu, gpus
from trainwright.hardware.machine.processor import cpu_features, cpu_model, is_virtual
from trainwright.hardware.machine.processor_clock import cpu_clock_hz

BUSY_INTERVAL_S = 0.15
"""Time for which the processors are watched to see what other programs use of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFacts:
    """Facts of a machine, as its operating system says; sizes in bytes, no measurement in it.

    ``cores`` are the physical cores that this process may use: affinity and container limits are respected.
    ``clock_hz`` is the nominal clock of a core, ``clock_max_hz`` its highest; None where the system does not tell.
    ``virtual``: a hypervisor runs the system, so that two of its processors may share one core.
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
    clock_hz: float | None = None
    clock_max_hz: float | None = None
    virtual: bool = False


def gather(disk_path: Path, *, watch_s: float = BUSY_INTERVAL_S) -> MachineFacts:
    """Returns the facts of this machine.

    Args:
        disk_path: where artefacts will be written; it need not exist yet.
        watch_s: how long to watch what others use of the processors; 0 takes the load of the last minute.
    """
    total, available = memory()
    physical, logical = cores()
    clock_hz, clock_max_hz = cpu_clock_hz()
    existing = next(path for path in (disk_path.absolute(), *disk_path.absolute().parents) if path.exists())
    return MachineFacts(
        system=platform.system(),
        release=platform.release(),
        architecture=platform.machine(),
        bits=struct.calcsize("P") * 8,
        python=platform.python_version(),
        torch=_version("torch"),
        cpu=cpu_model(),
        cores=physical,
        logical_cores=logical,
        cpu_features=cpu_features(),
        cpu_busy=_cpu_busy(watch_s),
        memory_bytes=total,
        memory_available_bytes=available,
        disk_path=str(existing),
        disk_free_bytes=shutil.disk_usage(existing).free,
        compiler=next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None),
        python_headers=(Path(sysconfig.get_paths()["include"]) / "Python.h").is_file(),
        gpus=gpus(),
        clock_hz=clock_hz,
        clock_max_hz=clock_max_hz,
        virtual=is_virtual(),
    )


def machine_digest() -> str:
    """Returns a digest that changes when a measurement would: processor, cores, memory, GPUs, driver, torch, Python."""
    total, _ = memory()
    return digest(
        {
            "system": platform.system(),
            "release": platform.release(),
            "architecture": platform.machine(),
            "cpu": cpu_model(),
            "features": cpu_features(),
            "cores": cores(),
            "memory_gib": round(total / GIB),
            "torch": _version("torch"),
            "python": platform.python_version(),
            "gpus": [(gpu.name, gpu.memory_bytes, gpu.driver) for gpu in gpus()],
        }
    )


@cache
def _version(package: str) -> str | None:
    """Returns the version of a package; None without it. Reading one takes milliseconds."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_busy(watch_s: float) -> float:
    if watch_s:
        return psutil.cpu_percent(interval=watch_s) / 100
    return min(1.0, psutil.getloadavg()[0] / (psutil.cpu_count() or 1))


def memory() -> tuple[int, int]:
    """Returns the bytes of memory that this process may use, and how many of them can still be taken."""
    host = psutil.virtual_memory()
    limit = cgroup.memory_limit_bytes()
    if limit is None or limit >= host.total:
        return host.total, host.available
    used = cgroup.memory_used_bytes() or 0
    return limit, min(host.available, max(0, limit - used))


def cores() -> tuple[int, int]:
    """Returns the physical and the logical cores that this process may use."""
    logical_on_host = psutil.cpu_count(logical=True) or 1
    physical_on_host = psutil.cpu_count(logical=False) or logical_on_host
    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical_on_host
    physical = max(1, logical * physical_on_host // logical_on_host)
    quota = cgroup.cpu_limit()
    return (physical if quota is None else max(1, min(physical, int(quota)))), logical
