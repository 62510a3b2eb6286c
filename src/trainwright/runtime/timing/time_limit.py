"""Ends a training politely before its time is over: the recipe's, or that of its Slurm job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from trainwright.core.errors import RecipeError
from trainwright.spec.sections.train import SLURM_END

SHARE, MOST_S = 0.1, 60.0
"""What is kept of the time for the first checkpoint, whose length nobody knows: this share, at most these seconds."""


class TimeLimit:
    """Watches the clock between steps."""

    def __init__(self, left_s: float, write_s: Callable[[], float], now: Callable[[], float] = time.monotonic) -> None:
        """Starts the clock.

        Args:
            left_s: seconds until everything must be over.
            write_s: tells the longest write of a checkpoint so far; 0: none was written.
            now: the clock.
        """
        self._now, self._write_s = now, write_s
        self._last_s = now()
        self._end_s = self._last_s + left_s
        self._unknown_s = min(SHARE * max(left_s, 0.0), MOST_S)
        self._step_s = 0.0

    def over(self) -> bool:
        """Returns whether no more than two steps and a checkpoint of twice the usual length fit; asked once a step.

        Two steps, because ranks hear of it one step later.
        """
        now = self._now()
        self._step_s = max(self._step_s, now - self._last_s)
        self._last_s = now
        write_s = 2 * self._write_s() or self._unknown_s
        return now + 2 * self._step_s + write_s >= self._end_s


def time_limit(
    asked_s: float | None, began_s: float, environ: Mapping[str, str], write_s: Callable[[], float]
) -> TimeLimit | None:
    """Returns the limit of a training: what the recipe asks, or the end of its Slurm job if earlier.

    Args:
        asked_s: seconds from the beginning, whatever was restarted since; None: the recipe asks for none.
        began_s: the beginning, by ``time.monotonic``.
        environ: the process's variables.
        write_s: as ``TimeLimit`` takes it.

    Raises:
        RecipeError: Slurm's variable is no time.
    """
    ends = [] if asked_s is None else [began_s + asked_s - time.monotonic()]
    told = environ.get(SLURM_END)
    if told:
        try:
            ends.append(float(told) - time.time())
        except ValueError as error:
            raise RecipeError("not a time", where=SLURM_END, seen=repr(told), expected="seconds since 1970") from error
    return TimeLimit(min(ends), write_s) if ends else None
