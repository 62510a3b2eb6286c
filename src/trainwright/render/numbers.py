"""Numbers with their units, as people read them in tables."""

from __future__ import annotations

from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_count, format_seconds


def number(value: float) -> str:
    """Four digits of it, and no exponent where people write none."""
    if abs(value) >= 1e6:
        return format_count(value)
    return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:,.4g}"


def expected(count: float) -> str:
    """Returns how often something is to be expected; what is nearly never says so."""
    return f"{count:,.0f}" if count >= 10 else f"{count:.2g}" if count >= 0.01 else "hardly any"


def steps_of(count: int) -> str:
    """Returns ``300 steps of``, before what a step has."""
    return f"{count:,} step{'s' * (count != 1)} of"


def energy(kwh: float) -> str:
    """Returns an energy with three digits: ``0.1 kWh``, ``9,360 kWh``, ``1.01M kWh``; rated powers say no more."""
    return f"{format_count(float(f'{kwh:.3g}'))} kWh"


def format_rate(per_s: float) -> str:
    """Returns tokens per second: whole ones from ten on."""
    return number(per_s) if per_s >= 1e6 else f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def share(value: float | None) -> str:
    """Returns a share in percent with one decimal."""
    return "unknown" if value is None else f"{value:.1%}"


def amount(value: float, unit: str) -> str:
    """Returns a number with its unit as people write it."""
    if unit == "bytes":
        return f"{value:,.4g} bytes" if value < 1024 else format_bytes(value)
    if unit == "s":
        return format_seconds(value) if value >= 1e-6 or not value else "under 1 µs"
    if unit == "$":
        return format_usd(value) if value >= 100 else f"${value:,.2f}"
    return f"{number(value)} {unit}".strip()


def measured(value: float | str | bool | None) -> str:
    """Returns what was measured: a number has four digits behind the point, or in all where that says more."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if value == 0 or 0.01 <= abs(value) < 100 else number(value)
