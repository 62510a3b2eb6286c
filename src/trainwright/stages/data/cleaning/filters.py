"""Filters that a recipe names in ``data.clean.filters``: ``None`` keeps a document, a text says why it is dropped.

A recipe may also give ``package.module:function`` with the same signature. The default thresholds of the filters here
are those of The Stack and StarCoder (arXiv:2305.06161, section 3.1) and of Gopher (arXiv:2112.11446, table A1).
"""

from __future__ import annotations

from collections.abc import Callable

from trainwright.spec.sections.data import FILTER, FewLetters, FilterSection, LongLines, RepeatedLines

Filter = Callable[[str], str | None]


def long_lines(text: str, section: LongLines) -> str | None:
    """Drops minified and generated text: a line that is too long, or lines that are on average."""
    lines = text.split("\n")
    if max(map(len, lines)) > section.max_characters:
        return f"a line over {section.max_characters:,} characters"
    mean = section.max_mean_characters
    return f"lines over {mean:,g} characters on average" if len(text) / len(lines) > mean else None


def few_letters(text: str, section: FewLetters) -> str | None:
    """Drops tables of numbers and binary blobs in text form: a small share of letters and digits."""
    few = sum(map(str.isalnum, text)) < section.min_ratio * len(text)
    return f"under {100 * section.min_ratio:.4g}% letters and digits" if few else None


def repeated_lines(text: str, section: RepeatedLines) -> str | None:
    """Drops boilerplate: many of the non-empty lines stand earlier in the document."""
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    many = len(lines) - len(set(lines)) > section.max_ratio * len(lines)
    return f"over {100 * section.max_ratio:.4g}% repeated lines" if many else None


def load_filters(sections: tuple[FilterSection, ...]) -> tuple[Filter, ...]:
    """Returns the filters of these sections, in order.

    Raises:
        RecipeError: a plug-in cannot be imported.
    """
    return tuple(FILTER.bound(section, FilterSection) for section in sections)
