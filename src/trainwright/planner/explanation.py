"""``Explanation``: a formula, the numbers put into it, and what it comes to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

_SYMBOL = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """A symbol of a formula: its value and what it means."""

    symbol: str
    value: float
    unit: str
    meaning: str


@dataclass(frozen=True, kw_only=True, slots=True)
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
        """The formula with each symbol's number, as ``text`` writes a value and its unit."""
        shown = {term.symbol: text(term.value, term.unit) for term in self.terms}
        return _SYMBOL.sub(lambda match: shown.get(match[0], match[0]), self.formula)

    def evaluated(self) -> float:
        """The formula computed from its terms: products before sums, as written."""
        values = {term.symbol: term.value for term in self.terms}
        return _sum(re.findall(r"[A-Za-z_]\w*|[\d.]+(?:e-?\d+)?|[()+×/^-]", self.formula), values)


def _sum(tokens: list[str], values: dict[str, float]) -> float:
    """Consume ``a + b - c`` up to a closing bracket or the end."""
    total = _product(tokens, values)
    while tokens and tokens[0] in "+-":
        sign = 1 if tokens.pop(0) == "+" else -1
        total += sign * _product(tokens, values)
    return total


def _product(tokens: list[str], values: dict[str, float]) -> float:
    total = _power(tokens, values)
    while tokens and tokens[0] in "×/":
        if tokens.pop(0) == "×":
            total *= _power(tokens, values)
        else:
            total /= _power(tokens, values)
    return total


def _power(tokens: list[str], values: dict[str, float]) -> float:
    base = _atom(tokens, values)
    if tokens and tokens[0] == "^":
        tokens.pop(0)
        return math.pow(base, _atom(tokens, values))
    return base


def _atom(tokens: list[str], values: dict[str, float]) -> float:
    token = tokens.pop(0)
    if token == "(":
        inner = _sum(tokens, values)
        tokens.pop(0)
        return inner
    return values[token] if token in values else float(token)
