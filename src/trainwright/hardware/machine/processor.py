"""The processor: its name, and the instruction sets that change how fast matrices multiply."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

_X86 = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
_ARM = ("neon", "asimd", "bf16", "i8mm", "sve")
CPU_FEATURES = (*_X86, *_ARM)
"""Instruction sets that change how fast matrices multiply."""


def cpu_model() -> str:
    """Returns the processor's name."""
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.processor()
    for line in cpuinfo():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def cpu_features() -> tuple[str, ...]:
    """Returns those of ``CPU_FEATURES`` that this processor has."""
    if sys.platform == "darwin":
        flags = (
            {"neon", "asimd"}
            if platform.machine() == "arm64"
            else set(_sysctl("machdep.cpu.leaf7_features").lower().split())
        )
        flags |= {name for name in ("bf16", "i8mm") if _sysctl(f"hw.optional.arm.FEAT_{name.upper()}") == "1"}
    else:
        flags = _flags()
    return tuple(name for name in CPU_FEATURES if name in flags)


def is_virtual() -> bool:
    """Returns whether a hypervisor runs this system, by the flags of an x86 processor (Linux)."""
    return "hypervisor" in _flags()


def _flags() -> set[str]:
    lines = (line.partition(":") for line in cpuinfo())
    return next((set(value.split()) for name, _, value in lines if name.strip() in ("flags", "Features")), set())


def cpuinfo() -> list[str]:
    """Returns the lines in which Linux describes the processors; none elsewhere."""
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def _sysctl(name: str) -> str:
    done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    return done.stdout.strip()
