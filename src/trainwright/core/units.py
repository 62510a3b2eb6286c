"""Quantities with units: parsed where a user writes them, formatted where a user reads them, SI in between."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass

_NUMBER = r"(?P<number>[0-9][0-9_,]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?|\.[0-9]+)"
_QUANTITY = re.compile(rf"^\s*{_NUMBER}\s*(?P<unit>[A-Za-z/ ]*?)\s*$")

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
MIB, GIB = 2**20, 2**30
"""Bytes in a MiB and in a GiB."""
DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12, "q": 10**15}
_BYTES = {
    "b": 1,
    "byte": 1,
    "bytes": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "pb": 10**15,
    "kib": 2**10,
    "mib": MIB,
    "gib": GIB,
    "tib": 2**40,
    "pib": 2**50,
}
_SECONDS: dict[str, int | Fraction] = {
    "ms": Fraction(1, 1000),
    "s": 1,
    "sec": 1,
    "second": 1,
    "seconds": 1,
    "min": 60,
    "minute": 60,
    "minutes": 60,
    "h": 3600,
    "hour": 3600,
    "hours": 3600,
    "d": 86400,
    "day": 86400,
    "days": 86400,
    "w": 604800,
    "week": 604800,
    "weeks": 604800,
}

YEAR_S = 365 * 86_400
DurationUnit = Literal["tokens", "steps", "epochs", "tokens_per_parameter"]
_DURATION: dict[str, DurationUnit] = {
    "tok": "tokens",
    "token": "tokens",
    "tokens": "tokens",
    "step": "steps",
    "steps": "steps",
    "epoch": "epochs",
    "epochs": "epochs",
    "tok/param": "tokens_per_parameter",
    "tokens/parameter": "tokens_per_parameter",
}


def split(value: int | float | str, *, expected: str) -> tuple[Fraction, str]:
    """Returns number and unit; exact, because 2**62 + 1 has no float."""
    match = None if isinstance(value, bool) else _QUANTITY.match(str(value))
    if match is None or len(match["number"]) > 99:  # beyond 300 digits there is no float
        raise RecipeError("cannot read a quantity", seen=repr(value), expected=expected)
    if "," in match["number"] and not _THOUSANDS.fullmatch(match["number"]):
        fix = "write decimals as in 1.5 and thousands as in 1,500"
        raise RecipeError("cannot read a quantity", seen=repr(value), expected=expected, fix=fix)
    return Fraction(match["number"].replace("_", "").replace(",", "")), match["unit"].strip()


def _whole(amount: Fraction, value: int | float | str, *, expected: str) -> int:
    if amount.denominator != 1:
        raise RecipeError("not a whole number", seen=repr(value), expected=expected)
    return int(amount)


def parse_bytes(value: int | float | str) -> int:
    """Returns bytes from ``80 GiB``, ``1.5 TB`` (decimal), or a plain number of bytes.

    Raises:
        RecipeError: no number, an unknown unit, or a part of a byte.
    """
    expected = "a size such as '80 GiB', '500 MB' or a number of bytes"
    number, unit = split(value, expected=expected)
    if unit.lower() not in _BYTES and unit:
        raise RecipeError("unknown unit of size", seen=repr(value), expected=expected)
    scale = _BYTES[unit.lower() or "b"]
    return round(number * scale) if scale > 1 else _whole(number, value, expected=expected)


def parse_seconds(value: int | float | str) -> float:
    """Returns seconds from ``30 min``, ``14d``, ``250 ms``, or a plain number of seconds.

    Raises:
        RecipeError: no number, or an unknown unit.
    """
    expected = "a time such as '30 min', '12 h', '14 d' or a number of seconds"
    number, unit = split(value, expected=expected)
    if unit.lower() not in _SECONDS and unit:
        raise RecipeError("unknown unit of time", seen=repr(value), expected=expected)
    return float(number * _SECONDS[unit.lower() or "s"])


def parse_count(value: int | float | str) -> int:
    """Returns a whole number from ``300B``, ``1.5M``, ``4_096`` or ``1e21``.

    Raises:
        RecipeError: no number, an unknown multiplier, or not a whole number.
    """
    expected = "a count such as '300B', '1.5M' or '4096'"
    number, unit = split(value, expected=expected)
    if unit.lower() not in DECIMAL:
        raise RecipeError("unknown multiplier", seen=repr(value), expected=expected)
    return _whole(number * DECIMAL[unit.lower()], value, expected=expected)


def at_least_one(number: int, *, field: str | None = None) -> int:
    """Returns ``number``; raises RecipeError where it is below one."""
    if number < 1:
        raise RecipeError("must be at least 1", field=field, seen=str(number))
    return number


@dataclass(frozen=True, kw_only=True, slots=True)
class Duration:
    """How long to train: an amount in exactly one unit, so that tokens are never taken for steps."""

    value: float
    unit: DurationUnit

    def __str__(self) -> str:
        short = {"tokens": "tok", "steps": "steps", "epochs": "epochs", "tokens_per_parameter": "tok/param"}[self.unit]
        return f"{format_count(self.value)} {short}"

    def tokens(self, *, batch_tokens: int, parameters: int | None = None, epoch_tokens: int | None = None) -> int:
        """Returns tokens in this duration, before rounding to whole steps.

        Raises:
            RecipeError: epochs without a dataset, or tokens per parameter without a parameter count.
        """
        if self.unit == "tokens" or not self.value:
            return round(self.value)
        if self.unit == "steps":
            return round(self.value) * batch_tokens
        known = parameters if self.unit == "tokens_per_parameter" else epoch_tokens
        if known is None:
            raise RecipeError(
                "the length of this run is not known yet",
                seen=str(self),
                expected="tokens or steps",
                fix="prepare the dataset first (trainwright data), or give the duration in tokens",
            )
        return round(self.value * known)


def parse_duration(value: int | float | str | Duration) -> Duration:
    """``20 tok/param``, ``300B tok``, ``2000 steps`` or ``3 epochs``; a bare number is refused as ambiguous.

    Raises:
        RecipeError: no number, no unit, or an unknown one.
    """
    if isinstance(value, Duration):
        return value
    expected = "a duration such as '300B tok', '20 tok/param', '2000 steps' or '3 epochs'"
    number, unit = split(value, expected=expected)
    multiplier, _, name = unit.lower().rpartition(" ")
    multiplier = multiplier.strip()
    if name not in _DURATION or multiplier not in DECIMAL:
        raise RecipeError("unknown unit of duration", seen=repr(value), expected=expected)
    return Duration(value=float(number * DECIMAL[multiplier]), unit=_DURATION[name])


def format_bytes(size_bytes: float) -> str:
    """``61.2 GiB``: binary units, four significant digits at most."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        shown = f"{size_bytes:.4g}"
        if abs(float(shown)) < 1024:
            return f"{shown} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.4g} PiB"


def format_seconds(seconds: float) -> str:
    """``355 years``, ``11.4 days``, ``3 h 20 min``, ``4 min 05 s``, ``12.3 s``, ``8.1 ms``, ``2.4 µs``, ``no end``."""
    if not seconds < float("inf"):
        return "no end" if seconds > 0 else "unknown"
    if 0 < seconds < 0.9995e-3:
        return f"{seconds * 1e6:.3g} µs"
    if 0 < seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    whole, minutes = round(seconds), round(seconds / 60)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if minutes < 2 * 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    days = float(f"{seconds / 86400:.3g}")
    return f"{days:.3g} days" if days < 1000 else f"{float(f'{seconds / YEAR_S:.3g}'):,g} years"


def format_factor(value: float) -> str:
    """``0.0016``, ``1.51``, ``12.3``, ``651``, ``2,780``: how many times as much, with three digits or so."""
    return f"{value:.2g}" if 0 < value < 0.01 else f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def format_count(value: float) -> str:
    """``1.5M``, ``300B``, ``4,096``; four significant digits from a million on."""
    if abs(value) < 1e6:
        return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1e4 else f"{value:,.4g}"
    rounded = float(f"{value:.4g}")
    scale, suffix = next(step for step in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if abs(rounded) >= step[0])
    return f"{rounded / scale:.4g}{suffix}"
