"""Ends a process with the one that started it, however that ended."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time

_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""
LOOK_S = 1.0


def end_with_parent() -> None:
    """Lets Linux's kernel kill this process when the one that started it ends; ends it now where that has ended.

    The kernel's watch works while a library holds Python's lock, too, but sees no end before it begins: a process that
    multiprocessing spawned imports for seconds before its first line.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)  # nobody is left who would read an error


def end_with(parent: int) -> None:
    """As ``end_with_parent`` for any process; a thread looks every second too, for the systems without such a kernel.

    Args:
        parent: the process that started this one; where it is gone already this one ends now.
    """
    end_with_parent()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(1)

    if os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=watch, daemon=True).start()
