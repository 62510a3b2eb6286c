"""A Gantt picture: phases of one step as bars, a lane for each rank. Plain SVG that needs no package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from trainwright.core.frozen import dataclass
from trainwright.core.units import format_seconds
from trainwright.render.pictures.bars import PHASE_TONES
from trainwright.render.pictures.figure import GRID, INK, SOFT, TONES

WIDTH, LEFT, RIGHT, TOP = 960, 120, 20, 34
"""Pixels: of the picture, for the lanes' names, at their end, and above the first."""
LANE, BAR, LEGEND = 30, 20, 22
TICKS = 5
"""At most, beside 0: they are at round numbers."""
COLUMNS = 5
"""Phases in a row of the legend."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """One rank: phases with their begin and end in seconds on the picture's axis."""

    name: str
    bars: Sequence[tuple[str, float, float]]


def gantt(lanes: Sequence[Lane], path: Path, *, title: str) -> None:
    """Draws lanes over one axis of time, which ends where the last of them does.

    Raises:
        MachineError: the file cannot be written.
    """
    from trainwright.artifact.store import write_atomically

    end_s = max(end for lane in lanes for *_, end in lane.bars)
    phases = [name for name in PHASE_TONES if any(name == bar[0] for lane in lanes for bar in lane.bars)]
    below = TOP + LANE * len(lanes)
    height = below + 30 + LEGEND * -(-len(phases) // COLUMNS) + 10
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14" fill="{INK}">{escape(title)}</text>',
        *_axis(end_s, below),
        *(part for number, lane in enumerate(lanes) for part in _lane(lane, TOP + LANE * number, end_s)),
        *_legend(phases, below + 34),
        "</svg>",
    ]
    write_atomically(path, "\n".join(parts).encode() + b"\n")


def _at(seconds: float, end_s: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * seconds / end_s


def _apart_s(end_s: float) -> float:
    """Returns how far apart ticks are: 1, 2 or 5 times a power of ten."""
    least_s = end_s / TICKS * (1 - 1e-9)
    power = 10.0 ** math.floor(math.log10(least_s))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least_s)


def _axis(end_s: float, below: int) -> list[str]:
    parts, apart_s = [], _apart_s(end_s)
    for tick in range(int(end_s / apart_s * (1 + 1e-9)) + 1):
        x, label = _at(tick * apart_s, end_s), format_seconds(tick * apart_s)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{below}" stroke="{GRID}"/>')
        anchor = "end" if x > WIDTH - 2 * RIGHT else "middle"
        parts.append(f'<text x="{x:.1f}" y="{below + 16}" text-anchor="{anchor}" fill="{SOFT}">{escape(label)}</text>')
    return parts


def _lane(lane: Lane, top: int, end_s: float) -> list[str]:
    parts = [f'<text x="10" y="{top + 15}" fill="{INK}">{escape(lane.name)}</text>']
    for phase, begin, end in lane.bars:
        x, width = _at(begin, end_s), _at(end, end_s) - _at(begin, end_s)
        hint = f"{phase.replace('_', ' ')}: {format_seconds(end - begin)}"
        parts.append(
            f'<rect x="{x:.2f}" y="{top}" width="{width:.2f}" height="{BAR}" fill="{TONES[PHASE_TONES[phase]]}">'
            f"<title>{escape(hint)}</title></rect>"
        )
    return parts


def _legend(phases: Sequence[str], top: int) -> list[str]:
    parts, step = [], (WIDTH - LEFT) // COLUMNS
    for number, phase in enumerate(phases):
        x, y = LEFT + step * (number % COLUMNS), top + LEGEND * (number // COLUMNS)
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{TONES[PHASE_TONES[phase]]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 11}" fill="{INK}">{escape(phase.replace("_", " "))}</text>')
    return parts
