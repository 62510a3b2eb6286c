"""``Explanation``: a formula, the numbers put into it, and what it comes to."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from trainwright.core.frozen import dataclass

_SYMBOL = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Term:
    """A symbol of a formula: its value and what it means."""

    symbol: str
    value: float
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """``value`` is what the forecast says and what ``formula`` comes to with ``terms``; ``details`` say what terms are.

    The formula is arithmetic over the terms' symbols, with ×, / and ^.
    """

    name: str
    about: str
    formula: str
    terms: tuple[Term, ...]
    value: float
    unit: str
    source: str = ""
    details: tuple[Term, ...] = ()

    def with_numbers(self, text: Callable[[float, str], str]) -> str:
        """Returns the formula with each symbol's number, as ``text`` writes a value and its unit."""
        shown = {term.symbol: text(term.value, term.unit) for term in self.terms}
        return _SYMBOL.sub(lambda match: shown.get(match[0], match[0]), self.formula)


def first(values: ArrayLike) -> float:
    """Returns the first of an array's values, or the value of a number: a plan's forecast has one layout."""
    return float(np.asarray(values, dtype=np.float64).reshape(-1)[0])
