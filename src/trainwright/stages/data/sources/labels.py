"""Labels of records, as documents carry them: a name, the names of a set as JSON, sorted and each once, or a number."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

NAMES = "a list of strings or whole numbers"
NUMBER = "a finite number"
_WRITTEN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number in a text: with a decimal point, if any, and with no separator between thousands."""


def set_of(names: Any) -> str | None:
    """Returns a set of labels as a document carries it; None where a value is no list of strings or whole numbers.

    An empty list is a set: the document has none of the labels.
    """
    if not isinstance(names, list) or not all(map(_is_name, names)):
        return None
    return json.dumps(sorted({str(name).strip() for name in names}), ensure_ascii=False)


def set_in(text: str, separator: str) -> str:
    """Returns the set of labels that a text names between separators; none where it is empty."""
    names = {name.strip() for name in text.split(separator)}
    return json.dumps(sorted(names - {""}), ensure_ascii=False)


def number_of(value: Any) -> str | None:
    """Returns a number as a document carries it: written so that a float of 64 bits comes back; None where it is none.

    A number of a text column or of CSV may be written in a text. What is not finite is none.
    """
    if isinstance(value, str):
        value = value.strip() if _WRITTEN.fullmatch(value.strip()) else None
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return repr(number + 0.0) if math.isfinite(number) else None  # no -0.0


def names_in(labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the names in sets of labels, sorted and each once."""
    return tuple(sorted({name for each in labels for name in json.loads(each)}))


def _is_name(value: Any) -> bool:
    return (isinstance(value, str) and bool(value.strip())) or (isinstance(value, int) and not isinstance(value, bool))
