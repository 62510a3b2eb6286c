"""Rows of the table of what a plan rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.core.units import format_seconds
from trainwright.render.numbers import number

if TYPE_CHECKING:
    from trainwright.spec.plan import Assumption


def assumption_row(entry: Assumption, *, whole: bool = True) -> tuple[str, str, str, str]:
    """Returns an assumption's row; a long source is cut unless all of it is wanted."""
    value = entry.value if isinstance(entry.value, str) else number(entry.value)
    if entry.unit == "s" and not isinstance(entry.value, str) and entry.value < 1:
        return entry.name, format_seconds(entry.value), entry.origin, entry.source
    source = entry.source if whole or len(entry.source) <= 90 else entry.source[:87].rstrip() + "..."
    return entry.name, f"{value} {entry.unit}".strip(), entry.origin, source
