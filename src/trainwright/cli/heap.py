"""Keeps glibc's malloc from growing under training: before 2.39 it cuts aligned blocks so that they never join again.

Every tensor on a CPU is aligned to 64 bytes, which leaves a few dozen bytes on either side of it. These releases put
them into the cache of the thread, where small objects take them; the large hole that a tensor leaves then ends there,
the next tensor of its size does not fit, and the heap grows (glibc's bug 30723, mended by its commit 542b1105 in 2.39).
Measured with GPT-2 124M on glibc 2.36: tensors take 2.7 GiB at most, the heap 4.8 GiB after 22 updates and more later;
without that cache 3.2 GiB, and no more (docs/lab/log.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

VARIABLE = "GLIBC_TUNABLES"
NO_CACHE = "glibc.malloc.tcache_count=0"
MENDED = (2, 39)
"""The release of glibc that joins what it cuts off."""


def glibc_version() -> tuple[int, ...] | None:
    """Returns the release of glibc that this process runs on; None on another C library."""
    try:
        said = os.confstr("CS_GNU_LIBC_VERSION") or ""
        return tuple(int(part) for part in said.removeprefix("glibc ").split("."))
    except (AttributeError, OSError, ValueError):  # Windows has no such function, macOS and musl no such name
        return None


def join_freed_blocks(environ: MutableMapping[str, str], glibc: tuple[int, ...] | None) -> bool:
    """Turns the thread's cache of small blocks off for processes that begin with ``environ``.

    Args:
        environ: of processes to come: malloc reads it once, when a process begins.
        glibc: their release of it.

    Returns:
        True where that changed ``environ``; False where no cache does harm, or the user has said otherwise.
    """
    said = environ.get(VARIABLE, "")
    if glibc is None or glibc >= MENDED or "glibc.malloc.tcache" in said:
        return False
    environ[VARIABLE] = f"{said}:{NO_CACHE}" if said else NO_CACHE
    return True


def begin_again() -> None:
    """Replaces this process by the same command with the environment as it is now; returns where that is refused."""
    sys.stdout.flush()
    try:
        os.execv(sys.executable, sys.orig_argv)
    except OSError:  # an interpreter that is no file, as in a frozen program: it trains all the same, in more memory
        return
