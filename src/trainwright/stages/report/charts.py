"""Charts as SVG text, drawn here so that the page needs no library and prints as it looks.

Each chart is drawn for a width in pixels; the page holds a wide and a narrow drawing and shows the one that
fits, so that letters keep their size on a phone. Colours are CSS classes: ``t0`` to ``t10`` are tones that differ in
lightness as well as in hue, ``ghost`` is the hollow form of a tone that stands for a prediction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Literal

from trainwright.stages.report import scale
from trainwright.stages.report.scale import Axis

Form = Literal["line", "faint", "dashed", "dots", "points"]
Format = Callable[[float], str]

CHARACTER_PX = 6.7
"""Width of an average character at 12 px, generous."""

TICK_PX = 50.0
"""A tick on the x axis wants so much room."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One line. A NaN is a gap; ``faint`` stays behind, ``dots`` marks each point as well, ``points`` draws no line."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    tone: int
    form: Form = "line"

    def points(self) -> list[tuple[float, float]]:
        """Returns the points with finite coordinates, in order."""
        return [(x, y) for x, y in zip(self.xs, self.ys, strict=True) if math.isfinite(x) and math.isfinite(y)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """A chart of lines over one x axis."""

    title: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    x_format: Format = scale.short
    y_format: Format = scale.short
    log: bool = False
    log_x: bool = False
    zero: bool = False
    height: int = 260


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A part of a bar; ``ghost`` draws it hollow, as a prediction."""

    name: str
    value: float
    tone: int
    ghost: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """Segments in a row, with what is written after them."""

    segments: Sequence[Segment]
    text: str
    label: str = ""

    @property
    def total(self) -> float:
        """Length of the whole bar."""
        return sum(segment.value for segment in self.segments if math.isfinite(segment.value))


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """Groups of horizontal bars: ``(label, bars)``."""

    title: str
    x_title: str
    groups: Sequence[tuple[str, Sequence[Bar]]]
    format: Format = scale.short
    axis: scale.AxisUnit | None = None
    legend: Sequence[tuple[str, int, bool]] = ()
    name_segments: bool = False


Chart = Lines | Bars


def draw(chart: Chart, width: int) -> str:
    """Returns the chart as an ``<svg>`` element of that width in pixels."""
    return _lines(chart, width) if isinstance(chart, Lines) else _bars(chart, width)


def describe(chart: Chart) -> str:
    """Returns what the chart shows, in words, for readers who do not see it."""
    if isinstance(chart, Lines):
        parts = []
        for series in (s for s in chart.series if s.form != "faint"):
            ends = [f"{chart.y_format(y)} at {chart.x_format(x)}" for x, y in series.points()]
            if ends:
                parts.append(f"{series.name} from {ends[0]} to {ends[-1]}")
        return f"{chart.title}, {chart.y_title} over {chart.x_title}: " + ("; ".join(parts) or "no points") + "."
    parts = [
        " ".join(part for part in (label, bar.label, bar.text) if part) for label, bars in chart.groups for bar in bars
    ]
    return f"{chart.title}: " + "; ".join(parts) + "."


# ---------------------------------------------------------------------------------------------------------------- lines


def _lines(chart: Lines, width: int) -> str:
    legend, legend_px = _legend(
        [(s.name, s.tone, s.form == "dashed") for s in chart.series if s.form != "faint"], width
    )
    top, bottom = legend_px + 22, 44
    height = chart.height + top + bottom - 60
    points = [point for series in chart.series for point in series.points()]
    make = scale.logarithmic if chart.log else scale.linear
    y_low, y_high = float(height - bottom), float(top)
    values = [y for _, y in points]
    zero = {"zero": True} if chart.zero and not chart.log else {}
    y = make(values, start_px=y_low, end_px=y_high, **zero)
    left = 14 + max(len(chart.y_format(tick)) for tick in y.ticks) * CHARACTER_PX
    x = _x_axis(chart, [x for x, _ in points], left=left, right=width - 14.0)
    body = [
        legend,
        _text(0, legend_px + 8, chart.y_title, "axis-title"),
        *_grid(x, y, chart),
        *(mark for series in chart.series for mark in _marks(series, x, y)),
        _text((x.start_px + x.end_px) / 2, height - 6, chart.x_title, "axis-title", anchor="middle"),
    ]
    hover = f" data-hover='{escape(_hover(chart, x), quote=True)}'"
    return _svg(
        chart, width, height, "".join(body), f'class="lines" data-top="{y_high:g}" data-bottom="{y_low:g}"{hover}'
    )


def _x_axis(chart: Lines, values: Sequence[float], *, left: float, right: float) -> Axis:
    make = scale.logarithmic if chart.log_x else scale.linear
    axis = make(values, start_px=left, end_px=right, ticks=min(8, max(2, int((right - left) / TICK_PX))))
    if chart.log_x:
        return axis
    # Lines run to the edge of the data; only the ticks within it stay.
    low, high = min(values, default=axis.low), max(values, default=axis.high)
    if low == high:
        return axis
    ticks = tuple(tick for tick in axis.ticks if low <= tick <= high)
    return Axis(low=low, high=high, start_px=left, end_px=right, ticks=ticks)


def _grid(x: Axis, y: Axis, chart: Lines) -> Iterator[str]:
    for tick in y.ticks:
        place = y(tick)
        yield f'<path class="grid" d="M{x.start_px:.1f} {place:.1f}H{x.end_px:.1f}"/>'
        yield _text(x.start_px - 8, place + 4, chart.y_format(tick), "tick", anchor="end")
    yield f'<path class="axis" d="M{x.start_px:.1f} {y.start_px:.1f}H{x.end_px:.1f}"/>'
    for tick in x.ticks:
        place = x(tick)
        yield f'<path class="axis" d="M{place:.1f} {y.start_px:.1f}v5"/>'
        anchor = "end" if place > x.end_px - 12 else "middle"
        yield _text(place, y.start_px + 18, chart.x_format(tick), "tick", anchor=anchor)


def _marks(series: Series, x: Axis, y: Axis) -> Iterator[str]:
    def drawn(point: tuple[float, float]) -> bool:
        return all(math.isfinite(v) for v in point) and not (y.log and point[1] <= 0) and not (x.log and point[0] <= 0)

    pairs = zip(series.xs, series.ys, strict=True)
    for visible, run in groupby(pairs, key=drawn):
        if not visible:
            continue
        places = [(x(a), y(b)) for a, b in run]
        if len(places) > 1 and series.form != "points":
            path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
            yield f'<path class="stroke t{series.tone} {series.form}" d="M{path}"/>'
        if series.form in ("dots", "points") or len(places) == 1:
            yield from (f'<circle class="fill t{series.tone}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in places)


def _hover(chart: Lines, x: Axis) -> str:
    """Returns what a tooltip shows: pixel, x, and each series' value there."""
    columns: dict[float, dict[str, str]] = {}
    for series in chart.series:
        for place, value in series.points():
            columns.setdefault(place, {})[series.name] = chart.y_format(value)
    rows = [
        [round(x(place), 1), chart.x_format(place), list(values.items())]
        for place, values in sorted(columns.items())
        if not (x.log and place <= 0)
    ]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


# ----------------------------------------------------------------------------------------------------------------- bars

_BAR = 18
_GAP = 4
_GROUP_GAP = 12


def _bars(chart: Bars, width: int) -> str:
    legend, top = _legend(chart.legend, width)
    bars = [bar for _, group in chart.groups for bar in group]
    beside = width > 420
    widest = max((len(label) for label, _ in chart.groups), default=0)
    left = min(widest * CHARACTER_PX + 12, width * 0.4) if beside else 0.0
    note = max((len(bar.text) for bar in bars), default=0) * CHARACTER_PX + 14
    end, unit = max(width - note, left + 80), 1.0 if chart.axis is None else chart.axis.size
    x = scale.linear([bar.total for bar in bars], start_px=left, end_px=end, zero=True, unit=unit)
    # Bars may end anywhere: unlike a line's, their axis need not run on to the next tick.
    longest = max((bar.total for bar in bars), default=0.0) or 1.0
    x = Axis(
        low=0.0, high=longest, start_px=x.start_px, end_px=x.end_px, ticks=tuple(t for t in x.ticks if t <= longest)
    )
    body, y = [], float(top + 4)
    for label, group in chart.groups:
        if not beside and label:
            body.append(_text(0, y + 12, label, "label"))
            y += 18
        middle = y + (len(group) * (_BAR + _GAP) - _GAP) / 2
        if beside:
            body.append(
                _text(left - 10, middle + 4, _cut(label, int((left - 10) / CHARACTER_PX) + 1), "label", anchor="end")
            )
        for bar in group:
            body += _bar(bar, x, y, chart)
            y += _BAR + _GAP
        y += _GROUP_GAP - _GAP
    ticks = [t for n, t in enumerate(x.ticks) if not n % max(1, -(-len(x.ticks) * 58 // int(x.end_px - x.start_px)))]
    grid = "".join(f'<path class="grid" d="M{x(tick):.1f} {top + 2}V{y:.1f}"/>' for tick in ticks)
    write = chart.axis or chart.format
    body += [_text(x(t), y + 14, write(t), "tick", anchor="middle" if x(t) > 14 else "start") for t in ticks]
    body.append(_text((x.start_px + x.end_px) / 2, y + 33, chart.x_title, "axis-title", anchor="middle"))
    return _svg(chart, width, y + 40, legend + grid + "".join(body), 'class="bars"')


def _bar(bar: Bar, x: Axis, y: float, chart: Bars) -> Iterator[str]:
    place = 0.0
    for segment in bar.segments:
        if not math.isfinite(segment.value) or segment.value <= 0:
            continue
        start, end = x(place), x(place + segment.value)
        ghost = " ghost" if segment.ghost else ""
        text = f"{segment.name}: {chart.format(segment.value)}"
        yield (
            f'<rect class="fill t{segment.tone}{ghost}" x="{start:.1f}" y="{y:.1f}" width="{max(end - start, 1):.1f}" '
            f'height="{_BAR}" rx="2"><title>{escape(text)}</title></rect>'
        )
        if chart.name_segments and end - start > len(segment.name) * CHARACTER_PX + 8:
            ink = "ink" if segment.ghost else f"on t{segment.tone}"
            yield _text((start + end) / 2, y + 13, segment.name, f"inside {ink}", anchor="middle")
        place += segment.value
    yield _text(x(place) + 7, y + 13.5, bar.text, "value")


# ------------------------------------------------------------------------------------------------------------- together


def _legend(entries: Sequence[tuple[str, int, bool]], width: int) -> tuple[str, int]:
    """Returns the legend and its height; it wraps where the width ends, and one line alone needs none."""
    if len(entries) < 2:
        return "", 0
    marks, x, y = [], 0.0, 0
    for name, tone, ghost in entries:
        wide = 20 + len(name) * CHARACTER_PX + 18
        if x and x + wide > width:
            x, y = 0.0, y + 19
        kind = f"fill t{tone}{' ghost' if ghost else ''}"
        marks.append(f'<rect class="{kind}" x="{x + 1:.1f}" y="{y + 3}" width="12" height="10" rx="2"/>')
        marks.append(_text(x + 18, y + 12, name, "legend"))
        x += wide
    return "".join(marks), y + 24


def _svg(chart: Chart, width: int, height: float, body: str, attributes: str) -> str:
    label = escape(describe(chart), quote=True)
    return (
        f'<svg {attributes} role="img" aria-label="{label}" viewBox="0 0 {width} {height:.0f}" width="{width}" '
        f'height="{height:.0f}">{body}</svg>'
    )


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{place}>{escape(text)}</text>'


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: max(1, characters - 1)] + "…"
