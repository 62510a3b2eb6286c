"""A process that ends with the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys

_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


def end_with_parent() -> None:
    """Lets the kernel kill this process when the one that started it ends, and ends it now where that has ended.

    The kernel's watch works while a library holds Python's lock, but sees no end before it begins: a process that
    multiprocessing spawned imports for seconds before its first line. On Linux alone.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)  # nobody is left who would read an error
