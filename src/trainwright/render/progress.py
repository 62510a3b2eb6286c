"""Shows events while they happen: a bar on a terminal, a line now and then anywhere else.

Rates come from the events' own times, so that what is shown is what was measured, or are what a task says itself; the
time left follows from the rate that is shown.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from trainwright.core.units import format_count, format_seconds
from trainwright.spec.event import Event

LINE_EVERY_S = 10.0
"""Seconds between two plain lines of one task."""
RATE_WINDOW_S = 30.0
"""The rate is the mean over this many seconds."""


@dataclass(kw_only=True)
class TaskState:
    """The state of one running task, from its events alone.

    ``metrics`` holds the latest values of the metrics ``<task>/<metric>``.
    """

    name: str
    unit: str = ""
    done: float = 0.0
    total: float | None = None
    started_s: float = 0.0
    history: deque[tuple[float, float]] = field(default_factory=deque)
    metrics: dict[str, float] = field(default_factory=dict)

    def update(self, event: Event) -> None:
        """Take in a progress event."""
        if not self.history or event.value < self.done:
            self.history.clear()
            self.started_s = event.t_s
        self.unit, self.done, self.total = event.unit, event.value, event.total
        self.history.append((event.t_s, event.value))
        while len(self.history) > 2 and event.t_s - self.history[1][0] >= RATE_WINDOW_S:
            self.history.popleft()

    @property
    def finished(self) -> bool:
        """Returns whether all of a known total is done."""
        return self.total is not None and self.done >= self.total

    @property
    def elapsed_s(self) -> float:
        """Returns seconds between the first and the latest event."""
        return self.history[-1][0] - self.started_s if self.history else 0.0

    @property
    def per_s(self) -> float | None:
        """Units per second: the task's own ``steps_per_s``, else over the window; None until two events are known."""
        own = self.metrics.get(f"{self.unit}_per_s")
        if own is not None:
            return own
        if len(self.history) < 2:
            return None
        (first_s, first), (last_s, last) = self.history[0], self.history[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None

    @property
    def remaining_s(self) -> float | None:
        """Returns the seconds to go at the present rate."""
        per_s = self.per_s
        return (self.total - self.done) / per_s if self.total is not None and per_s else None

    def text(self) -> str:
        """``120/2,000 steps (6 %), 3.1 steps/s, 10 min 06 s left, loss 2.312, 41,000 tokens/s, MFU 42.0 %``."""
        unit = f" {self.unit}" if self.unit else ""
        if self.total is None:
            parts = [f"{format_count(self.done)}{unit}"]
        else:
            share = f" ({self.done / self.total:.0%})" if self.total else ""
            parts = [f"{format_count(self.done)}/{format_count(self.total)}{unit}{share}"]
        if self.per_s:
            parts.append(f"{_rate(self.per_s)}{unit or ' '}/s")
        if self.finished:
            parts.append(f"took {format_seconds(self.elapsed_s)}")
        elif self.remaining_s is not None:
            parts.append(f"{format_seconds(self.remaining_s)} left")
        if "loss" in self.metrics:
            parts.append(f"loss {self.metrics['loss']:.4g}")
        parts += [
            f"{_rate(self.metrics[f'{unit}_per_s'])} {unit}/s"
            for unit in ("tokens", "images")
            if f"{unit}_per_s" in self.metrics
        ]
        if "mfu" in self.metrics:
            parts.append(f"MFU {self.metrics['mfu']:.1%}")
        return ", ".join(parts)


def moved(tasks: dict[str, TaskState], event: Event) -> TaskState | None:
    """Takes a progress event in; returns the task that it moved on, None where that had ended before."""
    task = tasks.setdefault(event.name, TaskState(name=event.name))
    had_ended = task.finished and event.value >= task.done
    task.update(event)
    return None if had_ended else task


class Screen(Protocol):
    """What progress is shown on: ``cli.output.Output``, or a program's standard error."""

    @property
    def quiet(self) -> bool:
        """Show nothing."""

    @property
    def verbose(self) -> bool:
        """Show every metric."""

    @property
    def stderr(self) -> TextIO:
        """Returns the stream to show it on."""

    def colored(self, stream: TextIO) -> bool:
        """Returns whether ``stream`` is a terminal that wants colours."""

    def note(self, text: str) -> None:
        """Writes a line on stderr."""


class Progress:
    """A listener for events; use it as a context manager around the work.

    Only rank 0 is shown. Quiet shows nothing; verbose also prints each metric.
    """

    def __init__(self, output: Screen) -> None:
        self._output = output
        self._tasks: dict[str, TaskState] = {}
        self._printed_s: dict[str, float] = {}
        self._bars: Any = None  # rich.progress.Progress, where there is a terminal
        self._bar_ids: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if not self._output.quiet and self._output.colored(self._output.stderr):
            # Only a terminal pays for importing rich.
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bars

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}", markup=False),
            )
            self._bars = Bars(*columns, console=Console(file=self._output.stderr, highlight=False), transient=True)
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, event: Event) -> None:
        """Show ``event``."""
        if event.rank != 0 or self._output.quiet:
            return
        if event.kind == "progress":
            self._progress(event)
        elif event.kind == "metric":
            self._metric(event)
        elif event.kind == "stage":
            self._stage(event)
        elif event.kind == "message":
            self._print(event.text)

    def _progress(self, event: Event) -> None:
        task = moved(self._tasks, event)
        if task is None:
            return
        due_s = self._printed_s.setdefault(event.name, event.t_s) + LINE_EVERY_S
        if task.finished or (self._bars is None and event.t_s >= due_s):
            self._printed_s[event.name] = event.t_s
            self._erase(event.name)
            self._print(f"{task.name}: {task.text()}")
        elif self._bars is not None:
            self._draw(task)

    def _metric(self, event: Event) -> None:
        task_name, _, metric = event.name.partition("/")
        self._tasks.setdefault(task_name, TaskState(name=task_name)).metrics[metric] = event.value
        if self._bars is not None and task_name in self._bar_ids:
            self._draw(self._tasks[task_name])
        if self._output.verbose:
            step = f"step {event.step}: " if event.step is not None else ""
            self._print(f"{step}{event.name} {event.value:.6g} {event.unit}".rstrip())

    def _stage(self, event: Event) -> None:
        if event.value < 1:
            if self._bars is None:
                self._print(f"{event.name}: {event.text or 'started'}")
            return
        for name in tuple(self._bar_ids):
            self._erase(name)
        self._print(f"{event.name}: {event.text or 'done'}")

    def _draw(self, task: TaskState) -> None:
        if task.name not in self._bar_ids:
            self._bar_ids[task.name] = self._bars.add_task(task.name, text="")
        self._bars.update(self._bar_ids[task.name], completed=task.done, total=task.total, text=task.text())

    def _erase(self, name: str) -> None:
        bar = self._bar_ids.pop(name, None)
        if bar is not None:
            self._bars.remove_task(bar)

    def _print(self, text: str) -> None:
        if self._bars is not None:
            self._bars.console.print(text, markup=False)
        else:
            self._output.note(text)


def _rate(per_s: float) -> str:
    return format_count(float(f"{per_s:.3g}"))
