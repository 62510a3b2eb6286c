"""Pictures of plans as SVG or PNG, by the file's suffix: memory, phases, scaling, time against money, truth.

Each function takes plain data and writes one file. Matplotlib is loaded when a picture is drawn; equal data make equal
bytes. Sizes suit a phone's width and a printed column alike: 11 point letters on 5.6 inches. The tones are the
report's: they differ in lightness as well as in hue, so that colour-blind eyes and grey paper tell them apart.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainwright.core.errors import MachineError, MissingPackage, RecipeError
from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
TONES = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e0a100", "#6a51a3", "#8a8f98", "#7a4b12", "#14213d",
)  # fmt: skip
INK, SOFT, GRID, WARN = "#1b1f24", "#5a6270", "#e3e4df", "#b3261e"
DARK_TONES = frozenset((TONES[0], TONES[1], TONES[2], TONES[6], TONES[8], TONES[9]))
"""Tones on which letters are white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MEMORY_TONES = {
    "weights": 0, "gradients": 1, "optimizer": 2, "activations": 3, "logits": 4, "communication": 5, "workspace": 6,
    "reserved_unused": 7, "context": 8,
}  # fmt: skip
PHASE_TONES = {
    "forward": 0, "backward": 1, "update": 2, "communicate": 3, "data_wait": 4, "preprocess": 5, "host_to_device": 6,
    "checkpoint": 8, "evaluate": 9, "host": 4, "idle": 7, "other": 7,
}  # fmt: skip
"""One tone for one phase in every picture."""
WIDTH_INCHES, DPI = 5.6, 200
KEY_CHARACTERS = 64
"""Letters of a key's line."""
BAR_CHARACTERS = 68
"""Letters of 10 points over a bar."""
NEAR_INCHES = 0.25
"""Points so near to each other have no room for two numbers."""
STYLE: Any = {
    "font.size": 11, "font.family": "sans-serif", "axes.labelsize": 11, "axes.titlesize": 12, "xtick.labelsize": 10,
    "ytick.labelsize": 10, "legend.fontsize": 10, "legend.frameon": False, "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": SOFT, "axes.labelcolor": INK, "text.color": INK,
    "xtick.color": SOFT, "ytick.color": SOFT, "axes.grid": True, "grid.color": GRID, "axes.axisbelow": True,
    "svg.hashsalt": "trainwright", "svg.fonttype": "none", "xtick.minor.visible": False,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBar:
    """One layout or stage: ``parts`` are bytes by memory class, ``available_bytes`` the device's memory."""

    name: str
    parts: Mapping[str, float]
    available_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBar:
    """One layout: ``parts`` are seconds of each phase of a step."""

    name: str
    parts: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingPoint:
    """Throughput on so many devices; points of one ``series`` (``strong``, ``weak``) are joined."""

    devices: int
    tokens_per_s: float
    series: str = "strong"


@dataclass(frozen=True, kw_only=True, slots=True)
class ParetoPoint:
    """A way to do the run; ``front``: no other is both faster and cheaper."""

    name: str
    seconds: float
    usd: float
    front: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ScatterPoint:
    """A measured value of ``source`` and the prediction of it, in one unit."""

    source: str
    measured: float
    predicted: float


def memory_bars(rows: Sequence[MemoryBar], path: Path, *, title: str = "") -> None:
    """Stacked bars of memory by class, each against its device's memory.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    with _picture(path, title, height=_bars_height(rows)) as figure:
        axes = figure.add_subplot()
        _stacks(axes, [(row.name, row.parts) for row in rows], MEMORY_TONES, scale=2.0**30)
        for place, row in enumerate(rows):
            total, limit = sum(row.parts.values()), row.available_bytes
            for edges in ((place - 0.45, place - 0.25), (place + 0.25, place + 0.45)):
                axes.plot([limit / 2**30] * 2, edges, color=INK, linewidth=2.5, solid_capstyle="butt")
            verdict = f"{format_bytes(total)} of {format_bytes(limit)}" + (": does not fit" if total > limit else "")
            _over_bar(axes, place, f"{row.name}: {verdict}", color=WARN if total > limit else INK)
        longest = max(max(sum(row.parts.values()), row.available_bytes) for row in rows)
        axes.set_xlim(0, 1.03 * longest / 2**30)
        axes.set_xlabel("peak memory of one device (GiB); black: what it has")


def step_bars(rows: Sequence[StepBar], path: Path, *, title: str = "") -> None:
    """Stacked bars of the phases of a step.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    longest = max(sum(row.parts.values()) for row in rows)
    unit, scale = ("s", 1.0) if longest >= 1 else ("ms", 1e-3)
    with _picture(path, title, height=_bars_height(rows)) as figure:
        axes = figure.add_subplot()
        _stacks(axes, [(row.name, row.parts) for row in rows], PHASE_TONES, scale=scale)
        for place, row in enumerate(rows):
            _over_bar(axes, place, f"{row.name}: {format_seconds(sum(row.parts.values()))}")
        axes.set_xlim(0, 1.03 * longest / scale)
        axes.set_xlabel(f"time of one step ({unit})")


def _bars_height(rows: Sequence[MemoryBar | StepBar]) -> float:
    """Inches: a bar, the axis, and a legend in three columns."""
    parts = {name for row in rows for name, value in row.parts.items() if value > 0}
    return 0.72 * len(rows) + 0.9 + 0.24 * math.ceil(len(parts) / 3)


def _stacks(
    axes: Axes, rows: Sequence[tuple[str, Mapping[str, float]]], tones: Mapping[str, int], scale: float
) -> None:
    """Horizontal bars from the top down; the parts' names stand under the picture."""
    longest = max(sum(parts.values()) for _, parts in rows)
    names = list(dict.fromkeys(name for _, parts in rows for name, value in parts.items() if value > 0))
    starts = [0.0] * len(rows)
    for name in names:
        tone = TONES[tones[name]]
        widths = [parts.get(name, 0.0) / scale for _, parts in rows]
        axes.barh(
            range(len(rows)), widths, left=starts, height=0.5, color=tone, edgecolor="white", linewidth=0.8,
            label=name.replace("_", " "),
        )  # fmt: skip
        for place, (start, width) in enumerate(zip(starts, widths, strict=True)):
            if width * scale > 0.11 * longest:
                color = "white" if tone in DARK_TONES else INK
                axes.text(start + width / 2, place, f"{width:.3g}", ha="center", va="center", color=color, fontsize=10)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.4, -0.75)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    _legend_below(axes, columns=3)


def _over_bar(axes: Axes, place: int, text: str, *, color: str = INK) -> None:
    """In letters so small that a long line fits."""
    axes.annotate(
        text, (0, place - 0.28), xytext=(2, 1), textcoords="offset points", ha="left", va="bottom", color=color,
        fontsize=min(10.0, 10.0 * BAR_CHARACTERS / len(text)), bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5},
    )  # fmt: skip


def scaling(points: Sequence[ScalingPoint], path: Path, *, stops_at: int | None = None, title: str = "") -> None:
    """Throughput and efficiency against devices, beside the ideal that the fewest devices would give.

    ``stops_at`` is the number of devices beyond which more of them do not pay.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    series = list(dict.fromkeys(point.series for point in points))
    counts = sorted({point.devices for point in points})
    with _picture(path, title, height=4.8) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for place, name in enumerate(series):
            ordered = sorted((point for point in points if point.series == name), key=lambda point: point.devices)
            xs, ys = [point.devices for point in ordered], [point.tokens_per_s for point in ordered]
            each = ys[0] / xs[0]
            look: Mapping[str, Any] = {"color": TONES[place], "marker": MARKERS[place], "markersize": 5}
            upper.plot(xs, [each * x for x in xs], color=SOFT, linestyle=(0, (4, 3)), linewidth=1.2,
                       label="ideal" if place == 0 else None)  # fmt: skip
            upper.plot(xs, ys, label=name, **look)
            lower.plot(xs, [100 * y / (each * x) for x, y in zip(xs, ys, strict=True)], label=name, **look)
        upper.set_xscale("log", base=2)
        _logarithmic(upper, "y", [point.tokens_per_s for point in points], short)
        shown = counts[:: math.ceil(len(counts) / 7)]
        upper.set_xticks(shown, [f"{count:,}" for count in shown])
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
                f"stops paying beyond {stops_at:,}", (stops_at, 6), xytext=(-5 if left else 5, 0), color=WARN,
                textcoords="offset points", ha="right" if left else "left", fontsize=10,
            )  # fmt: skip


def pareto(
    points: Sequence[ParetoPoint],
    path: Path,
    *,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    title: str = "",
) -> None:
    """Time against dollars: all ways in grey, the front as a line; the key below explains its numbers.

    Numbers stand where there is room for them; every point of the front is drawn.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    front = sorted((point for point in points if point.front), key=lambda point: point.seconds)
    numbered = spaced(front)
    key = [
        textwrap.fill(f"{format_seconds(point.seconds)}, {format_usd(point.usd)}: {point.name}", KEY_CHARACTERS)
        for point in numbered
    ]
    unit, scale = time_unit(max(point.seconds for point in points))
    with _picture(path, title, height=3.7 + 0.16 * sum(1.2 + text.count("\n") for text in key)) as figure:
        from matplotlib.lines import Line2D

        axes = figure.add_subplot()
        others = [point for point in points if not point.front]
        axes.plot([point.seconds / scale for point in others], [point.usd for point in others], linestyle="",
                  marker=".", markersize=5, color=TONES[7], alpha=0.6, markeredgewidth=0)  # fmt: skip
        axes.plot([point.seconds / scale for point in front], [point.usd for point in front], color=TONES[0],
                  marker="o", markersize=6, drawstyle="steps-post", linewidth=1.6)  # fmt: skip
        _logarithmic(axes, "x", [point.seconds / scale for point in points], lambda value: f"{value:.3g}")
        _logarithmic(axes, "y", [point.usd for point in points], lambda value: f"${short(value)}")
        look: dict[str, Any] = {"color": WARN, "linewidth": 1.2, "linestyle": ":"}
        note: dict[str, Any] = {"color": WARN, "fontsize": 9, "va": "bottom", "ha": "right"}
        if deadline_s is not None:
            axes.axvline(deadline_s / scale, **look)
            axes.text(deadline_s / scale, 0.5, "deadline", transform=axes.get_xaxis_transform(), rotation=90,
                      **note | {"va": "center"})  # fmt: skip
        if budget_usd is not None:
            axes.axhline(budget_usd, **look)
            axes.text(0.5, budget_usd, "budget", transform=axes.get_yaxis_transform(), **note | {"ha": "center"})
        axes.set_xlabel(f"time of the run ({unit})")
        axes.set_ylabel("cost of the run (USD)")
        handles = []
        for number, point in enumerate(numbered, 1):
            axes.annotate(
                str(number), (point.seconds / scale, point.usd), xytext=(-4, -4), textcoords="offset points",
                ha="right", va="top", color=TONES[0], fontweight="bold", fontsize=10,
            )  # fmt: skip
            handles.append(
                Line2D([], [], linestyle="", marker=f"${number}$", markersize=7 if number < 10 else 11, color=TONES[0])
            )
        figure.legend(handles, key, loc="outside lower left", fontsize=9, handlelength=0.8, alignment="left")


def spaced(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """The first, the last, and as many between as leave room for their numbers on logarithmic axes."""
    seconds, usd = ([math.log(getattr(point, name)) for point in points] for name in ("seconds", "usd"))
    wide, high = (max(values) - min(values) or 1.0 for values in (seconds, usd))
    places = [(4.4 * x / wide, 2.9 * y / high) for x, y in zip(seconds, usd, strict=True)]
    kept = [0]
    for place in range(1, len(points) - 1):
        if min(math.dist(places[place], places[kept[-1]]), math.dist(places[place], places[-1])) > NEAR_INCHES:
            kept.append(place)
    return [points[place] for place in dict.fromkeys((*kept, len(points) - 1))]


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
    with _picture(path, title, height=4.95 + 0.2 * rows) as figure:
        axes = figure.add_subplot()
        for factor, width in ((0.9, 0.8), (1.0, 0.4), (1.1, 0.8)):
            axes.plot([low, high], [factor * low, factor * high], color=INK, linewidth=width, zorder=3)
        looks = zip([*named, None] if rest else named, TONES, cycle(MARKERS), strict=False)
        for source, tone, marker in looks:
            mine = [p for p in points if (p.source == source if source is not None else p.source not in named)]
            label = f"{rest} other sources" if source is None else source
            axes.plot([p.measured for p in mine], [p.predicted for p in mine], linestyle="", marker=marker,
                      markersize=4, color=tone, alpha=0.7, markeredgewidth=0, label=label)  # fmt: skip
        _logarithmic(axes, "x", (low, high), short)
        _logarithmic(axes, "y", (low, high), short)
        axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
        axes.set_xlabel(f"measured ({unit})")
        axes.set_ylabel(f"predicted ({unit})")
        text = f"{len(points):,} measurements\nmedian error {errors[len(errors) // 2]:.1%}\nlines: ±10%"
        axes.text(0.03, 0.97, text, transform=axes.transAxes, va="top", fontsize=10, linespacing=1.3)
        _legend_below(axes, columns=2)


def time_unit(longest_s: float) -> tuple[str, float]:
    """The unit in which such times are read, and its seconds."""
    units = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))
    return next(((name, size) for name, size in units if longest_s >= 2 * size), ("s", 1.0))


def short(value: float) -> str:
    """``300``, ``20k``, ``1.5M``: a tick's number."""
    scale, suffix = next(
        (step for step in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")) if value >= step[0]), (1, "")
    )
    return f"{value / scale:.3g}{suffix}"


def _logarithmic(axes: Axes, axis: Literal["x", "y"], values: Sequence[float], text: Callable[[float], str]) -> None:
    """A logarithmic axis with a few round ticks: at 1, 2 and 5 times powers of ten where the range is short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    decades = math.log10(max(values) / min(values))
    steps = (1.0, 2.0, 5.0) if decades < 1.8 else (1.0, 3.0) if decades < 3 else (1.0,)
    (axes.set_xscale if axis == "x" else axes.set_yscale)("log")
    drawn = axes.xaxis if axis == "x" else axes.yaxis
    drawn.set_major_locator(LogLocator(subs=steps))
    drawn.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    drawn.set_minor_locator(NullLocator())


def _legend_below(axes: Axes, *, columns: int) -> None:
    figure = axes.figure
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, handlelength=1.0,
        columnspacing=1.4, handletextpad=0.5,
    )  # fmt: skip


def drawable(path: Path) -> Path:
    """``path`` itself, if a picture can be written there: asked before long answers are printed.

    Raises:
        RecipeError: its suffix is no picture's.
        MachineError: there is no such folder.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise RecipeError("cannot draw such a file", where=path, seen=repr(path.suffix), expected=" or ".join(SUFFIXES))
    if not path.parent.is_dir():
        raise MachineError("cannot write the picture", where=path, seen=f"no folder {path.parent}")
    return path


@contextmanager
def _picture(path: Path, title: str, *, height: float) -> Iterator[Figure]:
    """A figure in the project's style, written to ``path`` when it is drawn."""
    drawable(path)
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingPackage("matplotlib", needed_for="a picture", extra="pictures") from error
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(WIDTH_INCHES, height + 0.3 * bool(title)), layout="constrained")
        if title:
            figure.suptitle(title, x=0.02, ha="left")
        yield figure
        made = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
        try:
            figure.savefig(path, dpi=DPI, facecolor="white", metadata=made)
        except OSError as error:
            raise MachineError("cannot write the picture", where=path, seen=error.strerror) from None
