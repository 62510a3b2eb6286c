"""A run in a notebook: below its cell how far it is and its loss as a curve; at the end the page of its report.

``IPython`` is there where a notebook is: nothing of it is imported elsewhere.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trainwright.render.progress import TaskState, moved
from trainwright.spec.event import Event

EVERY_S = 0.5
"""Seconds between two drawings."""
MOST_POINTS = 512
"""Points of a curve; of twice as many every other one is kept."""
WIDTH, HEIGHT, EDGE = 480, 120, 6
"""Pixels of the curves, and of the room around them."""
PAGE_HEIGHT = 800
TONES = {"train/loss": "#0072b2", "validation/loss": "#d55e00"}
"""Curves that are drawn, by metric."""

Points = list[tuple[float, float]]


def in_notebook() -> bool:
    """Returns whether the kernel of a notebook runs this process."""
    found = sys.modules.get("IPython")
    return found is not None and getattr(found.get_ipython(), "kernel", None) is not None


def open_area() -> Callable[[str], None]:
    """Opens an area below the running cell; returns what puts HTML into it, in place of what was there."""
    display = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)
    return lambda html: handle.update(display.HTML(html))


def show_page(path: Path) -> None:
    """Shows a page of its own below the running cell: its styles and scripts stay inside its frame."""
    display: Any = import_module("IPython.display")
    frame = 'width="100%" style="border: 0" title="report"'
    page = escape(path.read_text(encoding="utf-8"), quote=True)
    display.display(display.HTML(f'<div><iframe {frame} height="{PAGE_HEIGHT}" srcdoc="{page}"></iframe></div>'))


class NotebookProgress:
    """A listener for events; use it as a context manager around the work. Only rank 0 is shown."""

    def __init__(self, draw: Callable[[str], None]) -> None:
        """Draw into the area that ``draw`` puts HTML into."""
        self._draw = draw
        self._drawn_s = 0.0
        self._lines: list[str] = []
        self._tasks: dict[str, TaskState] = {}
        self._running: dict[str, TaskState] = {}
        self._curves: dict[str, Points] = {}
        self._begins = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw(self.html())

    def __call__(self, event: Event) -> None:
        """Take in an event, and draw where the last drawing is old enough."""
        if event.rank != 0:
            return
        if event.kind == "progress":
            self._progress(event)
        elif event.kind == "metric":
            self._metric(event)
        elif event.kind == "stage" and event.value >= 1:
            self._running.clear()
            self._lines.append(f"{event.name}: {event.text or 'done'}")
        elif event.kind == "stage":
            self._begins = True
        elif event.kind == "resume":
            for points in self._curves.values():
                points[:] = [point for point in points if point[0] <= event.value]
        elif event.kind == "message":
            self._lines.append(event.text)
        if event.t_s - self._drawn_s >= EVERY_S:
            self._drawn_s = event.t_s
            self._draw(self.html())

    def html(self) -> str:
        """Returns the area: lines of what is done, a bar for each task that runs, the curves of the losses."""
        bars = "".join(map(_bar, self._running.values()))
        lines = f'<pre style="margin: 0; white-space: pre-wrap">{escape(chr(10).join(self._lines))}</pre>'
        return f"<div>{lines}{bars}{curves(self._curves)}</div>"

    def _progress(self, event: Event) -> None:
        task = moved(self._tasks, event)
        if task is None:
            return
        if task.finished:
            self._running.pop(event.name, None)
            self._lines.append(f"{task.name}: {task.text()}")
        else:
            self._running[event.name] = task

    def _metric(self, event: Event) -> None:
        name, _, metric = event.name.partition("/")
        self._tasks.setdefault(name, TaskState(name=name)).metrics[metric] = event.value
        if event.name in TONES and event.step is not None and math.isfinite(event.value):
            if self._begins:  # another training
                self._curves.clear()
                self._begins = False
            points = self._curves.setdefault(event.name, [])
            points.append((event.step, event.value))
            if len(points) >= 2 * MOST_POINTS:
                del points[1:-1:2]


def curves(points: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Returns losses by step as an ``<svg>`` element with what it shows in words below; nothing without two points."""
    shown = {name: each for name, each in points.items() if each}
    every = [point for each in shown.values() for point in each]
    steps, losses = [step for step, _ in every], [loss for _, loss in every]
    if len(set(steps)) < 2:
        return ""
    (left, right), (low, high) = (min(steps), max(steps)), (min(losses), max(losses))

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = (point[0] - left) / (right - left)
        down = (high - point[1]) / ((high - low) or 1.0)
        return EDGE + across * (WIDTH - 2 * EDGE), EDGE + down * (HEIGHT - 2 * EDGE)

    drawn = "".join(_line(TONES[name], list(map(place, each))) for name, each in shown.items())
    words = "; ".join(
        f'<span style="color: {TONES[name]}">{name}</span> {each[0][1]:.4g} at step {each[0][0]:,.0f}, '
        f"{each[-1][1]:.4g} at step {each[-1][0]:,.0f}"
        for name, each in shown.items()
    )
    return f'<svg width="{WIDTH}" height="{HEIGHT}" role="img">{drawn}</svg><div>{words}</div>'


def _line(tone: str, places: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{tone}"/>' for x, y in places if len(places) < 20)
    return f'<polyline points="{path}" fill="none" stroke="{tone}" stroke-width="1.5"/>{dots}'


def _bar(task: TaskState) -> str:
    size = f' max="{task.total:g}" value="{task.done:g}"' if task.total else ""
    return f"<div>{escape(task.name)}: <progress{size}></progress> {escape(task.text())}</div>"
