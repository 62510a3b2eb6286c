"""Prices that a user wrote into a list of their own: each is right, or the line that is wrong is named."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import get_args

from trainwright.core.errors import DataError, RecipeError
from trainwright.core.spelling import unknown
from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.prices.clouds import cloud
from trainwright.spec.device import PriceKind

_IS_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def checked_row(row: Mapping[str, str], *, where: str) -> dict[str, str]:
    """Returns a row with the catalogue's names of its device and its cloud.

    Args:
        row: by column, all of them there.
        where: its file and line.

    Raises:
        DataError: an unknown device, cloud or kind, what cannot be printed, a price that is no number above zero, or a
            day that is none or is still to come.
    """
    for name, text in row.items():
        if not text.isprintable():
            raise DataError("cannot be printed", where=where, seen=f"{name} {text!r}", expected="text of one line")
    try:
        names = {"device": device(row["device"]).name}
    except RecipeError as error:
        seen, expected = row["device"], error.expected
        raise DataError("unknown device", where=where, seen=repr(seen), expected=expected, fix=error.fix) from None
    try:
        names["provider"] = cloud(row["provider"]).title
    except RecipeError as error:
        seen, expected = row["provider"], error.expected
        raise DataError("unknown cloud", where=where, seen=repr(seen), expected=expected, fix=error.fix) from None
    if row["kind"] not in get_args(PriceKind):
        raise DataError("unknown kind of price", where=where, **unknown(row["kind"], get_args(PriceKind)))
    price = row["usd_per_device_hour"]
    if not 0 < _number(price) < math.inf:
        raise DataError("no price", where=where, seen=repr(price), expected="dollars above zero, for example 2.10")
    latest = datetime.now(UTC).date() + timedelta(days=1)  # a day ahead of UTC is today somewhere
    for day in (row["date"], row["as_of"] if _IS_DAY.fullmatch(row["as_of"]) else ""):
        if day and not _day(day) <= latest:
            expected = "a day such as 2026-01-31, not one to come"
            raise DataError("no date of a price", where=where, seen=repr(day), expected=expected)
    return {**row, **names}


def refuse_twins(rows: Iterable[Mapping[str, str]]) -> None:
    """Raises DataError where two rows price the same; each says ``where`` it stands."""
    seen: dict[tuple[str, ...], str] = {}
    for row in rows:
        offer = tuple(row[name] for name in ("device", "provider", "kind", "region", "instance"))
        if (first := seen.get(offer)) is not None:
            named = ", ".join(filter(None, offer))
            fix = "leave one of them out"
            raise DataError(
                "two prices of one offer, the other in {first}", where=row["where"], seen=named, fix=fix, first=first
            )
        seen[offer] = row["where"]


def _number(text: str) -> float:
    """Returns NaN where it is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _day(text: str) -> date:
    """Returns the last day that there is where the text is none."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return date.max
