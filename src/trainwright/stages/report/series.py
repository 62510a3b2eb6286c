"""From events to curves: read once, smoothed, and thinned to what a screen can show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from trainwright.spec.event import Event

POINTS = 240
"""A curve has at most so many points: one for every second or third pixel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Values of one metric by step, ascending; of a step reported twice (a resumed run) the last counts."""

    steps: Sequence[int] = ()
    values: Sequence[float] = ()
    unit: str = ""

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def last(self) -> float | None:
        """Returns the last finite value."""
        return next((value for value in reversed(self.values) if math.isfinite(value)), None)


@dataclass(slots=True)
class _Points:
    unit: str = ""
    by_step: dict[int, float] = field(default_factory=dict)


def curves(events: Iterable[Event]) -> dict[str, Curve]:
    """Returns every metric with a step, by name."""
    points_by_name: dict[str, _Points] = {}
    for event in events:
        if event.kind == "metric" and event.step is not None and event.rank == 0:
            points = points_by_name.setdefault(event.name, _Points())
            points.unit = event.unit or points.unit
            points.by_step[event.step] = event.value
    return {
        name: Curve(steps=sorted(p.by_step), values=[p.by_step[step] for step in sorted(p.by_step)], unit=p.unit)
        for name, p in points_by_name.items()
    }


def thin(curve: Curve, points: int = POINTS) -> Curve:
    """Returns at most ``points`` points, each the mean of its neighbours; the first and the last stay as they are."""
    size = len(curve.steps)
    if size <= points:
        return curve
    inner = points - 2
    edges = [1 + n * (size - 2) // inner for n in range(inner + 1)]
    steps, values = [curve.steps[0]], [curve.values[0]]
    for start, end in pairwise(edges):
        finite = [value for value in curve.values[start:end] if math.isfinite(value)]
        steps.append(curve.steps[(start + end) // 2])
        values.append(sum(finite) / len(finite) if finite else math.nan)
    return Curve(steps=[*steps, curve.steps[-1]], values=[*values, curve.values[-1]], unit=curve.unit)


def smooth(curve: Curve, *, share: float = 0.04) -> Curve:
    """Returns the mean over about ``share`` of the curve around each point; the window narrows towards both ends.

    It is symmetric everywhere, so that a falling curve is not shown late. A value that is not finite stays a gap and is
    left out of its neighbours' means.
    """
    size = len(curve.values)
    reach = round(share * size / 2)
    finite = [value if math.isfinite(value) else 0.0 for value in curve.values]
    sums = list(accumulate(finite, initial=0.0))
    counts = list(accumulate((int(math.isfinite(value)) for value in curve.values), initial=0))
    values = []
    for place, value in enumerate(curve.values):
        near = min(reach, place, size - 1 - place)
        low, high = place - near, place + near + 1
        values.append((sums[high] - sums[low]) / (counts[high] - counts[low]) if math.isfinite(value) else math.nan)
    return Curve(steps=curve.steps, values=values, unit=curve.unit)
