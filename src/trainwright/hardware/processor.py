"""The processor: its name, and the instruction sets that change how fast matrices multiply."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

CPU_FEATURES = (
    "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8",
    "neon", "asimd", "bf16", "i8mm", "sve",
)  # fmt: skip
"""Instruction sets that change how fast matrices multiply."""


def cpu_model() -> str:
    """The processor's name."""
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.processor()
    for line in _cpuinfo():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def cpu_features() -> tuple[str, ...]:
    """Which of ``CPU_FEATURES`` this processor has."""
    if sys.platform == "darwin":
        flags = (
            {"neon", "asimd"}
            if platform.machine() == "arm64"
            else set(_sysctl("machdep.cpu.leaf7_features").lower().split())
        )
        flags |= {name for name in ("bf16", "i8mm") if _sysctl(f"hw.optional.arm.FEAT_{name.upper()}") == "1"}
    else:
        lines = (line.partition(":") for line in _cpuinfo())
        flags = next((set(value.split()) for name, _, value in lines if name.strip() in ("flags", "Features")), set())
    return tuple(name for name in CPU_FEATURES if name in flags)


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def _sysctl(name: str) -> str:
    done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    return done.stdout.strip()
