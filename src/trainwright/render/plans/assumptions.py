"""Rows of the table of what a plan rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.core.money import format_hourly
from trainwright.core.units import format_seconds
from trainwright.render.numbers import number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwright.spec.plan import Assumption

SHORT = 72
"""Characters of a source where not all of it is wanted: one line of a terminal beside the other columns."""
LONG = 112
"""The same where it has a line to itself."""


def assumption_row(entry: Assumption, *, whole: bool = True) -> tuple[str, str, str, str]:
    """Returns an assumption's row; a long source is cut to its first clauses unless all of it is wanted."""
    return entry.name, _value(entry), entry.origin, entry.source if whole else shortened(entry.source)


def lengths_assumed(entries: Iterable[Assumption]) -> str:
    """Returns a remark that nobody said how long examples are; empty where somebody did."""
    return " (assumed)" if any(each.key == "lengths" and each.origin == "default" for each in entries) else ""


def _value(entry: Assumption) -> str:
    if isinstance(entry.value, str):
        return f"{entry.value} {entry.unit}".strip()
    if entry.unit == "s" and entry.value < 1:
        return format_seconds(entry.value)
    if entry.unit.startswith("$ "):
        return f"{format_hourly(entry.value)} {entry.unit.removeprefix('$ ')}"
    return f"{number(entry.value)} {entry.unit}".strip()


def shortened(source: str, *, most: int = SHORT) -> str:
    """Returns a source as far as whole clauses of it fit into one line; of a longer first clause the first words."""
    first, *more = source.split("; ")
    if len(first) > most:
        return f"{first[: most - 3].rpartition(' ')[0].rstrip(',')}..."
    for clause in more:
        if len(first) + len(clause) + 2 > most:
            break
        first = f"{first}; {clause}"
    return first
