"""Axes: which numbers stand on them, where, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_PREFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A range of values laid on a range of pixels; ``log`` lays their logarithms."""

    low: float
    high: float
    start_px: float
    end_px: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        """Returns the pixel of ``value``."""
        low, high, place = (
            (math.log10(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        return self.start_px + (place - low) / (high - low) * (self.end_px - self.start_px)


def linear(
    values: Iterable[float], *, start_px: float, end_px: float, ticks: int = 5, zero: bool = False, unit: float = 1.0
) -> Axis:
    """Returns an axis over the finite values, widened to ticks that are round in ``unit``; from 0 where ``zero``."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = (low - abs(low) / 10, high + abs(high) / 10) if low else (0.0, 1.0)
    step = _round_step((high - low) / ticks / unit) * unit
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    places = tuple(float(f"{n * step:.12g}") for n in range(first, last + 1))
    return Axis(low=places[0], high=places[-1], start_px=start_px, end_px=end_px, ticks=places)


def logarithmic(values: Iterable[float], *, start_px: float, end_px: float, ticks: int = 6) -> Axis:
    """Returns an axis over the positive finite values, with ticks at round multiples of powers of ten."""
    known = [value for value in values if math.isfinite(value) and value > 0] or [1.0, 10.0]
    low, high = min(known), max(known)
    if low == high:
        low, high = low / 2, high * 2
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        places = tuple(p for e in exponents for m in mantissas if low * 0.999 <= (p := m * 10.0**e) <= high * 1.001)
        if len(places) <= ticks:
            break
    else:
        every = -(-len(places) // ticks)
        places = places[::every]
    # Between values that are close together no round number may stand: then their ends say where they are.
    return Axis(low=low, high=high, start_px=start_px, end_px=end_px, ticks=places or (low, high), log=True)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * 0.999)


def short(value: float) -> str:
    """Returns ``1.5M``, ``20k``, ``0.25``, ``3e-4``: at most about five characters, for an axis."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "?"
    for scale, suffix in _PREFIXES:
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.3g}{suffix}"
    if abs(value) >= 0.001:
        return f"{value:.4g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisUnit:
    """The unit of a whole axis; called with a value, it writes it."""

    name: str
    size: float

    def __call__(self, value: float) -> str:
        """Returns ``210 MiB``."""
        return f"{value / self.size:.4g} {self.name}"


_BYTES = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))
_SECONDS = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def bytes_unit(largest: float) -> AxisUnit:
    """Returns the binary unit in which ``largest`` bytes reads best."""
    return _best(_BYTES, largest)


def seconds_unit(largest: float) -> AxisUnit:
    """Returns the unit of time in which ``largest`` seconds reads best."""
    return _best(_SECONDS, largest / 2)


def _best(units: Sequence[tuple[str, float]], largest: float) -> AxisUnit:
    name, size = next((unit for unit in units if largest >= unit[1]), units[-1])
    return AxisUnit(name=name, size=size)
