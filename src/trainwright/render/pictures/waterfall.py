"""The waterfall: what each technique adds to the throughput of a training, measured and predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.core.frozen import dataclass
from trainwright.render.pictures.figure import INK, SOFT, TONES, WARN, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BASE_TONE, GAIN_TONE, LEFT_OUT_TONE = TONES[0], TONES[2], TONES[7]
ROW_INCHES = 0.46


@dataclass(frozen=True, kw_only=True, slots=True)
class WaterfallStep:
    """One technique: ``gain`` and its interval, and what was predicted, as factors; ``kept``: the next build on it."""

    name: str
    gain: float
    low: float
    high: float
    predicted: float
    kept: bool


def waterfall(
    base: float,
    steps: Sequence[WaterfallStep],
    path: Path,
    *,
    title: str = "",
    last: str = "tuned",
    end: float | None = None,
) -> None:
    """Bars of tokens per second from ``base`` on, one for each technique; grey ones were not kept.

    A whisker is the interval, a diamond what was predicted.

    Args:
        base: tokens per second of the first bar.
        steps: the bars between.
        path: of the picture.
        title: above it.
        last: the last bar's name.
        end: its tokens per second as they were measured; None: those of the steps that were kept.

    Raises:
        RecipeError: ``path`` ends in neither .svg nor .png.
        MissingPackage: matplotlib is not installed.
    """
    with picture(path, title, height=1.2 + ROW_INCHES * (len(steps) + 2)) as figure:
        axes = figure.add_subplot()
        _bar(axes, 0, 0.0, base, BASE_TONE)
        level, furthest = base, base
        for place, step in enumerate(steps, start=1):
            reached = level * step.gain
            _bar(axes, place, level, reached, GAIN_TONE if step.kept else LEFT_OUT_TONE)
            axes.plot([level * step.low, level * step.high], [place, place], color=INK, linewidth=1.2)
            axes.plot(level * step.predicted, place, marker="D", color=WARN, markersize=5, linestyle="")
            furthest = max(furthest, level * max(step.gain, step.high, step.predicted))
            axes.annotate(
                f"{step.gain:.2f}x",
                (level * max(1.0, step.gain, step.high, step.predicted), place),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                color=INK if step.kept else SOFT,
                fontsize=10,
            )
            if step.kept:
                axes.plot([reached, reached], [place, place + 1], color=SOFT, linewidth=0.8, linestyle=":")
                level = reached
        level = level if end is None else end
        _bar(axes, len(steps) + 1, 0.0, level, BASE_TONE)
        furthest = max(furthest, level)
        axes.set_yticks(range(len(steps) + 2), ["naive", *(step.name for step in steps), last])
        axes.set_ylim(len(steps) + 1.6, -0.6)
        axes.set_xlim(0, 1.16 * furthest or 1.0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("tokens/s; line: interval, diamond: predicted, grey: not kept")


def _bar(axes: Axes, place: int, start: float, end: float, tone: str) -> None:
    axes.barh(place, end - start, left=start, height=0.56, color=tone, edgecolor="white", linewidth=0.8)
