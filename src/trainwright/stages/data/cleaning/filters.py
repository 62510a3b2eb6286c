"""Filters that a recipe names in ``data.clean.filters``: ``None`` keeps a document, a text says why it is dropped.

A recipe may also give ``package.module:function`` with the same signature. The thresholds of the filters here are
those of The Stack and StarCoder (arXiv:2305.06161, section 3.1) and of Gopher (arXiv:2112.11446, table A1).
"""

from __future__ import annotations

from collections.abc import Callable

from trainwright.spec.sections.data import FILTER

Filter = Callable[[str], str | None]


def long_lines(text: str) -> str | None:
    """Drops minified and generated text: a line over 1,000 characters, or over 100 on average."""
    lines = text.split("\n")
    if max(map(len, lines)) > 1000:
        return "a line over 1,000 characters"
    return "lines over 100 characters on average" if len(text) / len(lines) > 100 else None


def few_letters(text: str) -> str | None:
    """Drops tables of numbers and binary blobs in text form: under a quarter letters and digits."""
    return "under 25% letters and digits" if sum(map(str.isalnum, text)) < 0.25 * len(text) else None


def repeated_lines(text: str) -> str | None:
    """Drops boilerplate: over 30 % of the non-empty lines stand earlier in the document."""
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    return "over 30% repeated lines" if len(lines) - len(set(lines)) > 0.3 * len(lines) else None


def load_filters(names: tuple[str, ...]) -> tuple[Filter, ...]:
    """Returns the filters of these names, in order.

    Raises:
        RecipeError: a name is unknown or cannot be imported.
    """
    return tuple(FILTER.load(name) for name in names)
