"""Stacked bars: the memory of a device by class, the phases of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.core.frozen import dataclass
from trainwright.core.units import GIB, format_bytes, format_seconds
from trainwright.render.pictures.figure import INK, TONES, WARN, legend_below, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes


DARK_TONES = frozenset((TONES[0], TONES[1], TONES[2], TONES[6], TONES[8], TONES[9]))
"""Tones on which letters are white."""


MEMORY_TONES = {
    "weights": 0,
    "gradients": 1,
    "optimizer": 2,
    "activations": 3,
    "logits": 4,
    "communication": 5,
    "workspace": 6,
    "reserved_unused": 7,
    "context": 8,
}


PHASE_TONES = {
    "forward": 0,
    "backward": 1,
    "update": 2,
    "communicate": 3,
    "data_wait": 4,
    "preprocess": 5,
    "host_to_device": 6,
    "compile": 10,
    "checkpoint": 8,
    "evaluate": 9,
    "host": 4,
    "idle": 7,
    "other": 7,
}
"""One tone for one phase in every picture."""


BAR_CHARACTERS = 68
"""Letters of 10 points over a bar."""


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


def memory_bars(rows: Sequence[MemoryBar], path: Path, *, title: str = "") -> None:
    """Stacked bars of memory by class, each against its device's memory.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    with picture(path, title, height=_bars_height(rows)) as figure:
        axes = figure.add_subplot()
        _stacks(axes, [(row.name, row.parts) for row in rows], MEMORY_TONES, scale=GIB)
        for place, row in enumerate(rows):
            total, limit = sum(row.parts.values()), row.available_bytes
            for edges in ((place - 0.45, place - 0.25), (place + 0.25, place + 0.45)):
                axes.plot([limit / GIB] * 2, edges, color=INK, linewidth=2.5, solid_capstyle="butt")
            verdict = f"{format_bytes(total)} of {format_bytes(limit)}" + (": does not fit" if total > limit else "")
            _over_bar(axes, place, f"{row.name}: {verdict}", color=WARN if total > limit else INK)
        longest = max(max(sum(row.parts.values()), row.available_bytes) for row in rows)
        axes.set_xlim(0, 1.03 * longest / GIB)
        axes.set_xlabel("peak memory of one device (GiB); black: what it has")


def step_bars(rows: Sequence[StepBar], path: Path) -> None:
    """Stacked bars of the phases of a step.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    longest = max(sum(row.parts.values()) for row in rows)
    unit, scale = ("s", 1.0) if longest >= 1 else ("ms", 1e-3)
    with picture(path, height=_bars_height(rows)) as figure:
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
            range(len(rows)),
            widths,
            left=starts,
            height=0.5,
            color=tone,
            edgecolor="white",
            linewidth=0.8,
            label=name.replace("_", " "),
        )
        for place, (start, width) in enumerate(zip(starts, widths, strict=True)):
            if width * scale > 0.11 * longest:
                color = "white" if tone in DARK_TONES else INK
                axes.text(start + width / 2, place, f"{width:.3g}", ha="center", va="center", color=color, fontsize=10)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.4, -0.75)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    legend_below(axes, columns=3)


def _over_bar(axes: Axes, place: int, text: str, *, color: str = INK) -> None:
    """In letters so small that a long line fits."""
    axes.annotate(
        text,
        (0, place - 0.28),
        xytext=(2, 1),
        textcoords="offset points",
        ha="left",
        va="bottom",
        color=color,
        fontsize=min(10.0, 10.0 * BAR_CHARACTERS / len(text)),
        bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5},
    )
