"""Tells glibc's malloc to keep freed memory, so that a training step does not fault the same pages in again and again.

By default every tensor above 128 KiB is a mapping of its own that goes back to the kernel when it is freed; each step
then pays for zeroed pages anew. Measured with ``benchmarks/train_cpu.py --allocator``.
"""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
"""Parameter numbers of mallopt(3)."""
_KEEP_ALL = 2**31 - 1
_GROW_BYTES = 64 << 20


def keep_freed_memory() -> bool:
    """Serve all of this process's allocations from a heap that never shrinks; whether malloc agreed.

    Only glibc has these switches; elsewhere nothing happens and the answer is False.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    wanted = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _KEEP_ALL), (_M_TOP_PAD, _GROW_BYTES))
    return all(libc.mallopt(number, value) == 1 for number, value in wanted)
