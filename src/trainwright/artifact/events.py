"""The event stream: append-only ``events.jsonl``, fanned out to listeners such as the progress bar."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Self

from trainwright.core.errors import DataError
from trainwright.spec.event import Event, EventKind

Listener = Callable[[Event], None]
START = "train/start_s"
"""Metric: seconds from a session's beginning, or the line before a restart, until its first step could be made."""
_DEFAULTS = {"unit": "", "step": None, "rank": 0, "total": None, "text": ""}
_FIELDS = frozenset(field.name for field in fields(Event))


class Events:
    """Writes events to a file and tells listeners about them.

    Each event is one ``write`` of one line, so that a kill leaves at most one torn last line, which ``read_events``
    and the next writer skip. Progress events reach the listeners only.

    Args:
        path: the ``events.jsonl`` to append to, or None for listeners only.
        run: the name put into every event.
        listeners: called with each event, in order.
        rank: the process's rank in a distributed run.
    """

    def __init__(self, path: Path | None, *, run: str, listeners: tuple[Listener, ...] = (), rank: int = 0) -> None:
        self.run = run
        self.listeners = listeners
        self._rank = rank
        self._stream = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
            self._stream = path.open("a", encoding="utf-8")
            if torn:
                self._stream.write("\n")

    def emit(
        self,
        kind: EventKind,
        name: str,
        value: float,
        *,
        unit: str = "",
        step: int | None = None,
        total: float | None = None,
        text: str = "",
    ) -> None:
        """Record one event now."""
        event = Event(
            run=self.run,
            t_s=time.time(),
            kind=kind,
            name=name,
            value=value,
            unit=unit,
            step=step,
            rank=self._rank,
            total=total,
            text=text,
        )
        if self._stream is not None and kind != "progress":
            record = {key: item for key, item in asdict(event).items() if item != _DEFAULTS.get(key, _DEFAULTS)}
            self._stream.write(json.dumps(record, ensure_ascii=False) + "\n")
            self._stream.flush()
        for listener in self.listeners:
            listener(event)

    def metric(self, name: str, value: float, *, unit: str = "", step: int | None = None) -> None:
        """Record a measured number."""
        self.emit("metric", name, value, unit=unit, step=step)

    def progress(self, name: str, done: float, *, total: float | None = None, unit: str = "") -> None:
        """Tell listeners how far a task is."""
        self.emit("progress", name, done, total=total, unit=unit)

    def message(self, text: str) -> None:
        """Tell a person something."""
        self.emit("message", "", 0.0, text=text)

    def close(self) -> None:
        """Close the file; listeners stay usable."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_events(path: Path) -> Iterator[Event]:
    """Yields the events of a file in order, without those that a later ``resume`` undoes.

    A torn line (a killed writer) is skipped. The file is read twice: what undoes an event stands behind it.

    Raises:
        DataError: the file does not exist.
    """
    if not path.is_file():
        raise DataError("no events here", where=path, fix="run the stage that writes them first")
    last_kept = [event.step or 0 if event.kind == "resume" else math.inf for event in _recorded(path)]
    # The last step that survives every resume behind an event: the smallest of theirs.
    for index in range(len(last_kept) - 2, -1, -1):
        last_kept[index] = min(last_kept[index], last_kept[index + 1])
    for event, step in zip(_recorded(path), [*last_kept[1:], math.inf], strict=False):
        if (event.step or 0) <= step:
            yield event


def worked_s(path: Path) -> tuple[float, float]:
    """Returns the seconds of all sessions in a log, up to the last line of each, and when its last line was written.

    What was done and is done again counts, and so does the time from a fault to the restart. A night in which nobody
    resumed does not, nor what a killed process did after its last line. Both are 0 where there is no log.
    """
    total_s, first_s, last_s, resumed = 0.0, 0.0, 0.0, False
    for event in _recorded(path) if path.is_file() else ():
        if event.name == START:
            total_s += event.value + (last_s - first_s if resumed else 0.0)
        if (event.name == START and resumed) or not first_s:  # a resume with no start behind it is a step back
            first_s = event.t_s
        resumed = event.kind == "resume"
        last_s = last_s if resumed else event.t_s
    return total_s + last_s - first_s, last_s


def restarts_in(path: Path) -> int:
    """Returns how often the work that an event file is of was begun again after a fault."""
    return sum(event.kind == "restart" for event in _recorded(path)) if path.is_file() else 0


def _recorded(path: Path) -> Iterator[Event]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict) and {"run", "t_s", "kind", "name", "value"} <= record.keys() <= _FIELDS:
                yield Event(**record)
