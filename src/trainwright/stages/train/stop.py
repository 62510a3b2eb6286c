"""Stopping on request: the first signal of ``SIGNALS`` ends after the step under way, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from trainwright.core.errors import HungUp, Interrupted, Terminated, TrainwrightError, Warned
from trainwright.core.registry import load
from trainwright.spec.sections.train import SLURM_END

if TYPE_CHECKING:
    from trainwright.runtime.timing.time_limit import TimeLimit

SIGNALS = {"SIGINT": Interrupted, "SIGTERM": Terminated, "SIGHUP": HungUp, "SIGUSR1": Warned}
"""The error of each signal that asks to stop; SIGUSR1 is what Slurm sends before a job's time is over (--signal)."""
LIMIT = "trainwright.runtime.timing.time_limit:time_limit"
TIME_LIMIT = "its time limit"
ERRORS = {**SIGNALS, TIME_LIMIT: Interrupted}
"""The error of whatever stops a training, by its name. Of several that stop ranks at once the last one counts: they
exchange its place here."""


def heard() -> list[signal.Signals]:
    """Returns the signals that stop a training of this process: nohup has it leave SIGHUP alone."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.Signals[name] for name in SIGNALS if not (nohup and name == "SIGHUP")]


def stopped(by: str, step: int, steps: int, *, checkpoint: str) -> TrainwrightError:
    """Returns the error of a training that was stopped by one of ``ERRORS`` after a step that is saved."""
    return ERRORS[by](
        "stopped by {signal} after step {step} of {steps}; saved in {checkpoint}",
        fix="run the same command to go on from there",
        signal=by,
        step=step,
        steps=steps,
        checkpoint=checkpoint,
    )


def time_limit(asked_s: float | None, launched_s: float, saving_s: Callable[[], float]) -> TimeLimit | None:
    """Returns what says after each step whether the time is over; None where nothing ends it.

    Args:
        asked_s: by the recipe.
        launched_s: when the command began to train, by ``time.monotonic``.
        saving_s: gives the seconds that saving has taken at most.
    """
    if asked_s is None and SLURM_END not in os.environ:
        return None
    limit: TimeLimit = load(LIMIT, kind="clock")(asked_s, launched_s, os.environ, saving_s)
    return limit


class StopRequest:
    """While entered in the main thread, remembers the first signal instead of dying of it."""

    def __init__(self) -> None:
        self.requested: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in heard()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is not None:
            previous = self._previous.get(signal.Signals(number))
            if callable(previous):
                previous(number, frame)
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name
