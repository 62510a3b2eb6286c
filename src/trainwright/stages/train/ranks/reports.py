"""What ranks tell the process that started them: each has a pipe of its own.

A rank that is killed in the middle of a report leaves half of it, and whatever guards a pipe of several ranks stays
locked for ever: with one pipe each, nobody waits for the other half.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe, wait

from trainwright.artifact.events import Events
from trainwright.core.errors import TrainwrightError
from trainwright.spec.event import Event

Report = Event | TrainwrightError
LISTENS_ON_S = 5.0
"""How long the starter waits for the last reports: processes that ranks have left behind may keep a pipe open."""


class Reporter:
    """A rank's end of its pipe; any thread may report."""

    def __init__(self, pipes: Sequence[Connection], local_rank: int) -> None:
        for number, pipe in enumerate(pipes):
            if number != local_rank:
                pipe.close()  # it ends with the rank that it belongs to
        self._pipe, self._lock = pipes[local_rank], threading.Lock()

    def put(self, report: Report) -> None:
        """Reports an event, or an error that a user can mend."""
        with self._lock:
            self._pipe.send(report)


@contextmanager
def listening(ranks: int, events: Events, errors: list[TrainwrightError]) -> Iterator[Sequence[Connection]]:
    """Passes events on and collects errors for as long as ranks run; gives what a ``Reporter`` of each is made of."""
    pairs = [Pipe(duplex=False) for _ in range(ranks)]
    pipes = [pipe for pipe, _ in pairs]
    thread = threading.Thread(target=_listen, args=(pipes, events, errors), name="ranks", daemon=True)
    thread.start()
    try:
        yield [end for _, end in pairs]
    finally:
        for _, end in pairs:
            end.close()
        thread.join(LISTENS_ON_S)


def _listen(pipes: list[Connection], events: Events, errors: list[TrainwrightError]) -> None:
    while pipes:
        ready = wait(pipes)
        for pipe in [each for each in pipes if each in ready]:
            try:
                report: Report = pipe.recv()
            except (EOFError, OSError):  # OSError: it ended in the middle of a report
                pipes.remove(pipe)
                pipe.close()
                continue
            if isinstance(report, Event):
                for listener in events.listeners:
                    listener(report)
            else:
                errors.append(report)
