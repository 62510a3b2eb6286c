"""Limits of a container: memory and CPU limits of control groups, version 1 and 2 (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_UNLIMITED_BYTES = 1 << 60
"""Version 1 says "no limit" as the largest page-aligned 64-bit number."""


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Returns the tightest memory limit on this process in bytes, or None where there is none."""
    limits = []
    for folder in _folders(root, controller="memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit() and int(text) < _UNLIMITED_BYTES:
                limits.append(int(text))
    return min(limits) if limits else None


def memory_used_bytes(root: Path = Path("/")) -> int | None:
    """Returns the bytes that the group with the tightest limit uses without its page cache; None without a limit."""
    limit = memory_limit_bytes(root)
    for folder in _folders(root, controller="memory"):
        for limit_name, use_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            if limit is not None and _read(folder / limit_name) == str(limit):
                used = _read(folder / use_name)
                return max(0, int(used) - _page_cache(folder)) if used.isdigit() else None
    return None


def cpu_limit(root: Path = Path("/")) -> float | None:
    """Returns the tightest CPU quota in cores, or None where there is none."""
    quotas = []
    for folder in _folders(root, controller="cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas) if quotas else None


def _folders(root: Path, *, controller: str) -> Iterator[Path]:
    """Yields the folders of this process's group and of its ancestors, in both versions' trees."""
    base = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = base / controller if controllers else base
        group = top / path.lstrip("/")
        yield group
        yield from (parent for parent in group.parents if parent == top or top in parent.parents)


def _page_cache(folder: Path) -> int:
    for line in _read(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdigit():
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # absent, or hidden from this container: no limit is known from it
        return ""
