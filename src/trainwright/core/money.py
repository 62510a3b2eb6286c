"""Amounts of money: parsed where a user writes them, formatted where a user reads them, dollars in between."""

from __future__ import annotations

from trainwright.core.errors import RecipeError
from trainwright.core.units import DECIMAL, split


def parse_usd(value: int | float | str, *, where: str | None = None) -> float:
    """Dollars from ``$50k``, ``50k$``, ``1.2M``, ``$1,234.50`` or a plain number.

    Raises:
        RecipeError: no number, or another currency.
    """
    expected = "an amount such as '$50k', '50k$', '1.2M' or a number of dollars"
    text = str(value).strip()
    for sign in ("$", "usd"):
        text = text.lower().removeprefix(sign).removesuffix(sign).strip()
    try:
        number, unit = split(value if isinstance(value, bool) else text, expected=expected)
    except RecipeError as error:
        raise error.at(where, seen=repr(value)) from error
    if unit not in DECIMAL:
        raise RecipeError("unknown unit of money", where=where, seen=repr(value), expected=expected)
    return float(number * DECIMAL[unit])


def format_usd(usd: float) -> str:
    """``$273k``, ``$1,234``, ``$0.042``."""
    if usd >= 1e4:
        power = sum(float(f"{usd:.3g}") >= least for least in (1e3, 1e6, 1e9))
        return f"${usd / 1000**power:.3g}{' kMB'[power]}"
    return f"${usd:,.0f}" if usd >= 10 else f"${usd:.2g}"


def format_hourly(usd: float) -> str:
    """``$1.87``, ``$0.05``, ``$0.0042``: a price of an hour, to the cent where it has cents."""
    return f"${usd:,.2f}" if usd >= 0.095 or not usd else f"${usd:.2g}"
