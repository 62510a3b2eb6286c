"""Signals of the process that starts ranks: those that train save and end by themselves, those that start end at once.

Nothing is raised while torch's agent runs: it sees that ranks have ended, and the command ends by the signal after it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import psutil

from trainwright.stages.train.ranks.watch import Watch
from trainwright.stages.train.stop import heard

LEFT_TO_THE_AGENT = "SIGQUIT"
"""Else torch's agent takes over SIGINT, SIGTERM and SIGHUP, ends ranks in the middle of a step after 30 seconds, and
raises an error wherever it stands."""


class Asked:
    """Passes signals on to the ranks of a watch, and remembers the first one that came while there were some."""

    def __init__(self, watch: Watch) -> None:
        self.first: signal.Signals | None = None
        self._watch = watch
        self._before: dict[int, Any] = {}

    @contextmanager
    def passed_on(self) -> Iterator[None]:
        """Hears signals for a while, in the main thread; afterwards they are heard as before.

        Threads that are to hear a Ctrl-C must have begun before: this one leaves it to them.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = heard()
        self._before = {number: signal.getsignal(number) for number in (*numbers, signal.SIGQUIT)}
        for number in numbers:
            signal.signal(number, self.hear)
        # Ranks inherit what their starter's thread blocks: a Ctrl-C, which a terminal sends to all, waits in them until
        # they can end without a traceback.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        try:
            yield
        finally:
            for each, handler in self._before.items():
                signal.signal(each, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def hear(self, number: int, _frame: FrameType | None) -> None:
        """Passes a signal on to ranks that train; ends those that have not begun, and all on a second one."""
        ranks = _ranks()
        if not ranks:
            signal.signal(number, self._before[number])
            os.kill(os.getpid(), number)
            return
        begun = {state.pid for state in self._watch.states().values()} if self.first is None else set()
        self.first = self.first or signal.Signals(number)
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, number if pid in begun else signal.SIGKILL)


def _ranks() -> list[int]:
    """Returns the processes that this one has spawned, those too that are being given what they need."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(process.cmdline()):
                found.append(process.pid)
    return found
