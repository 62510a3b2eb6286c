"""Charts: throughput against devices, time against dollars, predicted against measured."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count, cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainwright.core.frozen import dataclass
from trainwright.core.money import format_usd
from trainwright.core.units import format_seconds
from trainwright.render.pictures.figure import INK, SOFT, TONES, WARN, legend_below, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


MARKERS = ("o", "s", "^", "D", "v", "P", "X")


KEY_CHARACTERS = 64
"""Letters of a key's line."""


TICK_NAMES = {
    60.0: "1 min",
    600.0: "10 min",
    3600.0: "1 h",
    4 * 3600.0: "4 h",
    12 * 3600.0: "12 h",
    86400.0: "1 day",
    3 * 86400.0: "3 days",
    7 * 86400.0: "1 week",
    14 * 86400.0: "2 weeks",
    30 * 86400.0: "1 month",
    91 * 86400.0: "3 months",
    365.25 * 86400.0: "1 year",
    10 * 365.25 * 86400.0: "10 years",
    100 * 365.25 * 86400.0: "100 years",
}
"""Times at which a long axis has ticks, in seconds."""
SHORT_TICK_NAMES = {
    size * count: f"{count} {name}"
    for name, size, counts in (
        ("s", 1.0, (1, 2, 5, 10, 20, 30)),
        ("min", 60.0, (1, 2, 5, 10, 20, 30)),
        ("h", 3600.0, (1, 2, 4, 8, 12)),
        ("days", 86400.0, (1, 2, 4, 7, 14, 30, 60, 120)),
        ("years", 365.25 * 86400.0, (1, 2, 5, 10, 20, 50, 100)),
    )
    for count in counts
} | {86400.0: "1 day", 365.25 * 86400.0: "1 year"}
"""The same of a short axis, which has fewer than four of the others."""
TICK_INCHES = 0.6
"""The width that a tick's name needs."""


BEYOND = 10.0
"""Ways that take or cost more than so many times the most of the front's are counted, not drawn: they would squeeze
those that anybody chooses into a corner."""
LETTER_INCHES, APART_INCHES = (0.09, 0.17), 0.04
"""Width of a bold digit of 10 points and height of a line of them; what keeps two numbers apart."""
AXES_INCHES = (4.4, 2.9)
"""Width and height of the axes, about: what the tick names and the key leave of the picture."""
BELOW = 0.1
"""Of the axis, left free: the number of the cheapest way stands below its point."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingPoint:
    """Throughput on so many devices; points of one ``series`` (``strong``, ``weak``) are joined."""

    devices: int
    tokens_per_s: float
    series: str = "strong"


@dataclass(frozen=True, kw_only=True, slots=True)
class ParetoPoint:
    """A way to do the run, its cost in dollars or device-hours; ``front``: no other is both faster and cheaper.

    ``unsure``: its memory is so near to the device's that the prediction's error decides.
    """

    name: str
    seconds: float
    cost: float
    front: bool
    unsure: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ScatterPoint:
    """A measured value of ``source`` and the prediction of it, in one unit."""

    source: str
    measured: float
    predicted: float


def scaling(points: Sequence[ScalingPoint], path: Path, *, stops_at: int | None = None) -> None:
    """Throughput and efficiency against devices, beside the ideal that the fewest devices would give.

    ``stops_at`` is the number of devices beyond which more of them do not pay.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    series = list(dict.fromkeys(point.series for point in points))
    counts = sorted({point.devices for point in points})
    with picture(path, height=4.8) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for place, name in enumerate(series):
            ordered = sorted((point for point in points if point.series == name), key=lambda point: point.devices)
            xs, ys = [point.devices for point in ordered], [point.tokens_per_s for point in ordered]
            each = ys[0] / xs[0]
            look: Mapping[str, Any] = {"color": TONES[place], "marker": MARKERS[place], "markersize": 5}
            upper.plot(
                xs,
                [each * x for x in xs],
                color=SOFT,
                linestyle=(0, (4, 3)),
                linewidth=1.2,
                label="ideal" if place == 0 else None,
            )
            upper.plot(xs, ys, label=name, **look)
            lower.plot(xs, [100 * y / (each * x) for x, y in zip(xs, ys, strict=True)], label=name, **look)
        upper.set_xscale("log", base=2)
        _logarithmic(upper, "y", [point.tokens_per_s for point in points], short)
        shown = counts[:: math.ceil(len(counts) / 7)]
        upper.set_xticks(shown, [f"{each:,}" for each in shown])
        upper.set_ylabel("tokens/s")
        lower.set_ylim(0, max(105.0, lower.get_ylim()[1]))
        lower.set_ylabel("efficiency (%)")
        lower.set_xlabel("devices")
        upper.legend(loc="upper left")
        if stops_at is not None:
            for axes in (upper, lower):
                axes.axvline(stops_at, color=WARN, linewidth=1.4, linestyle=":")
            left = stops_at * stops_at > counts[0] * counts[-1]
            lower.annotate(
                f"stops paying beyond {stops_at:,}",
                (stops_at, 6),
                xytext=(-5 if left else 5, 0),
                color=WARN,
                textcoords="offset points",
                ha="right" if left else "left",
                fontsize=10,
            )


def pareto(
    points: Sequence[ParetoPoint],
    path: Path,
    *,
    in_usd: bool = True,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    title: str = "",
) -> None:
    """Time against dollars (else device-hours): all ways in grey, the front as a line; the key names its points.

    Points that lie too near for a number each share one, such as 3-5. What may not fit is a ring.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    front = sorted((point for point in points if point.front), key=lambda point: point.seconds)
    others = [point for point in points if not point.front]
    near = _within(others, front)
    text = format_usd if in_usd else lambda hours: f"{short(hours)} device-hours"
    key = [
        textwrap.fill(
            f"{format_seconds(point.seconds)}, {text(point.cost)}: {point.name}{', may not fit' * point.unsure}",
            KEY_CHARACTERS,
        )
        for point in front
    ]
    if others:
        beyond = f" ({len(others) - len(near):,} of them beyond the axes)" if len(near) < len(others) else ""
        line = f"other ways, {len(others):,}{beyond}: to each, one of the line is as fast and as cheap"
        key.append(textwrap.fill(line, KEY_CHARACTERS))
    with picture(path, title, height=3.7 + 0.16 * sum(1.2 + text.count("\n") for text in key)) as figure:
        axes = figure.add_subplot()
        grey: dict[str, Any] = {"linestyle": "", "marker": ".", "color": TONES[7], "alpha": 0.6, "markeredgewidth": 0}
        axes.margins(y=BELOW)
        (dots,) = _ways(axes, near, markersize=5, **grey)
        _ways(axes, front, color=TONES[0], marker="o", markersize=6, drawstyle="steps-post", linewidth=1.6)
        rings: dict[str, Any] = {"linestyle": "", "marker": "o", "color": TONES[0], "markerfacecolor": "white"}
        _ways(axes, [point for point in front if point.unsure], markersize=6, **rings)
        _cost_axis(axes, [point.cost for point in (*near, *front)], in_usd=in_usd)
        _limits(axes, deadline_s, budget_usd if in_usd else None)
        _time_axis(axes, [point.seconds for point in (*near, *front)])
        axes.set_xlabel("time of the run")
        axes.set_ylabel("cost of the run (USD)" if in_usd else "device-hours of the run")
        handles = [*_numbers(axes, front), dots][: len(key)]
        figure.legend(handles, key, loc="outside lower left", fontsize=9, handlelength=0.8, alignment="left")


def _within(others: Sequence[ParetoPoint], front: Sequence[ParetoPoint]) -> Sequence[ParetoPoint]:
    """Returns the ways that are drawn: all of them where there is no front."""
    if not front:
        return others
    seconds, cost = (BEYOND * max(getattr(point, name) for point in front) for name in ("seconds", "cost"))
    return [point for point in others if point.seconds <= seconds and (point.cost <= cost or not cost)]


def _ways(axes: Axes, points: Sequence[ParetoPoint], **look: Any) -> list[Line2D]:
    return axes.plot([point.seconds for point in points], [point.cost for point in points], **look)


def _cost_axis(axes: Axes, costs: Sequence[float], *, in_usd: bool) -> None:
    """Makes a logarithmic axis; a linear one from zero, where something costs nothing, as one's own devices may."""

    def text(value: float) -> str:
        return ("$" if in_usd else "") + short(value)

    if min(costs) > 0:
        _logarithmic(axes, "y", costs, text)
        return
    from matplotlib.ticker import FuncFormatter

    top = max(costs) or 1.0
    axes.set_ylim(-BELOW * top, (1 + BELOW) * top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value) if value >= 0 else ""))


def _time_axis(axes: Axes, seconds: Sequence[float]) -> None:
    """Makes a logarithmic axis with ticks at times that people speak of, as far apart as their names are wide."""
    _logarithmic(axes, "x", seconds, format_seconds)
    low, high = axes.get_xlim()
    inside = [[size for size in sizes if low <= size <= high] for sizes in (TICK_NAMES, SHORT_TICK_NAMES)]
    ticks = inside[0] if len(inside[0]) >= 4 else inside[1]
    if len(ticks) < 2:
        ticks = sorted({min(seconds), max(seconds)})
    apart = (high / low) ** (TICK_INCHES / AXES_INCHES[0])
    kept = ticks[:1]
    for size in ticks[1:]:
        if size >= apart * kept[-1]:
            kept.append(size)
    names = SHORT_TICK_NAMES | TICK_NAMES
    axes.set_xticks(kept, [names.get(size) or format_seconds(size) for size in kept])
    axes.set_xlim(low, high)


def _limits(axes: Axes, deadline: float | None, budget_usd: float | None) -> None:
    """Dotted lines at the deadline (in the unit of the axis) and the budget, which a linear axis may not reach."""
    look: dict[str, Any] = {"color": WARN, "linewidth": 1.2, "linestyle": ":"}
    note: dict[str, Any] = {"color": WARN, "fontsize": 9, "va": "bottom", "ha": "right"}
    if deadline is not None:
        axes.axvline(deadline, **look)
        across = axes.get_xaxis_transform()
        axes.text(deadline, 0.5, "deadline", transform=across, rotation=90, **note | {"va": "center"})
    if budget_usd is not None and (axes.get_yscale() == "log" or budget_usd <= axes.get_ylim()[1]):
        axes.axhline(budget_usd, **look)
        axes.text(0.5, budget_usd, "budget", transform=axes.get_yaxis_transform(), **note | {"ha": "center"})


def _numbers(axes: Axes, points: Sequence[ParetoPoint]) -> list[Line2D]:
    """Puts a number beside each group of near points, and returns the handles of the key."""
    from matplotlib.lines import Line2D

    axes.get_xlim(), axes.get_ylim()  # the limits are of what was drawn only once somebody asks for them
    inside = axes.transData + axes.transAxes.inverted()
    places = [inside.transform((point.seconds, point.cost)) for point in points]
    for group in near_groups([(AXES_INCHES[0] * x, AXES_INCHES[1] * y) for x, y in places]):
        first = points[group[0]]
        axes.annotate(
            _number(group),
            (first.seconds, first.cost),
            xytext=(-4, -4),
            textcoords="offset points",
            ha="right",
            va="top",
            color=TONES[0],
            fontweight="bold",
            fontsize=10,
        )
    numbers = range(1, len(points) + 1)
    look: dict[str, Any] = {"linestyle": "", "color": TONES[0]}
    return [Line2D([], [], marker=f"${each}$", markersize=7 if each < 10 else 11, **look) for each in numbers]


def near_groups(places: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Returns the points of a front in groups, in order, so that no two groups' numbers lie upon each other.

    Args:
        places: of each point, in inches across and up; a group's number stands left of its first one.
    """
    groups: list[list[int]] = []
    for letters in count(1):
        groups = []
        for place in range(len(places)):
            if groups and _collide(places[groups[-1][0]], places[place], letters):
                groups[-1].append(place)
            else:
                groups.append([place])
        if not any(
            _collide(places[one[0]], places[other[0]], len(max(_number(one), _number(other), key=len)))
            for one, other in pairwise(groups)
        ):
            break
    return groups


def _collide(one: tuple[float, float], other: tuple[float, float], letters: int) -> bool:
    """Returns whether numbers of so many letters lie upon each other."""
    wide, high = LETTER_INCHES
    return abs(one[0] - other[0]) < wide * letters + APART_INCHES and abs(one[1] - other[1]) < high


def _number(group: Sequence[int]) -> str:
    return str(group[0] + 1) if len(group) == 1 else f"{group[0] + 1}-{group[-1] + 1}"


def scatter(points: Sequence[ScatterPoint], path: Path, *, unit: str = "tokens/s per device", title: str = "") -> None:
    """Predicted against measured, both logarithmic, by source, between lines 10 % to either side.

    The nine sources with most points have a name and a tone, the others share one.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    counts = Counter(point.source for point in points)
    named = [source for source, _ in counts.most_common(9)]
    rest = len(counts) - len(named)
    values = [value for point in points for value in (point.measured, point.predicted)]
    low, high = min(values) / 1.2, max(values) * 1.2
    errors = sorted(abs(point.predicted / point.measured - 1) for point in points)
    rows = math.ceil((len(named) + (rest > 0)) / 2)
    with picture(path, title, height=4.95 + 0.2 * rows) as figure:
        axes = figure.add_subplot()
        for factor, width in ((0.9, 0.8), (1.0, 0.4), (1.1, 0.8)):
            axes.plot([low, high], [factor * low, factor * high], color=INK, linewidth=width, zorder=3)
        looks = zip([*named, None] if rest else named, TONES, cycle(MARKERS), strict=False)
        for source, tone, marker in looks:
            mine = [p for p in points if (p.source == source if source is not None else p.source not in named)]
            label = f"{rest} other sources" if source is None else source
            axes.plot(
                [p.measured for p in mine],
                [p.predicted for p in mine],
                linestyle="",
                marker=marker,
                markersize=4,
                color=tone,
                alpha=0.7,
                markeredgewidth=0,
                label=label,
            )
        _logarithmic(axes, "x", (low, high), short)
        _logarithmic(axes, "y", (low, high), short)
        axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
        axes.set_xlabel(f"measured ({unit})")
        axes.set_ylabel(f"predicted ({unit})")
        text = f"{len(points):,} measurements\nmedian error {errors[len(errors) // 2]:.1%}\nlines: ±10%"
        axes.text(0.03, 0.97, text, transform=axes.transAxes, va="top", fontsize=10, linespacing=1.3)
        legend_below(axes, columns=2)


def short(value: float) -> str:
    """``300``, ``20k``, ``1.5M``: a tick's number."""
    scale, suffix = next(
        (step for step in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")) if value >= step[0]), (1, "")
    )
    return f"{value / scale:.3g}{suffix}"


def _logarithmic(axes: Axes, axis: Literal["x", "y"], values: Sequence[float], text: Callable[[float], str]) -> None:
    """Makes a logarithmic axis with a few round ticks: at 1, 2 and 5 times powers of ten where the range is short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    decades = math.log10(max(values) / min(values))
    steps = (1.0, 2.0, 5.0) if decades < 1.8 else (1.0, 3.0) if decades < 3 else (1.0,)
    (axes.set_xscale if axis == "x" else axes.set_yscale)("log")
    drawn = axes.xaxis if axis == "x" else axes.yaxis
    drawn.set_major_locator(LogLocator(subs=steps))
    drawn.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    drawn.set_minor_locator(NullLocator())
