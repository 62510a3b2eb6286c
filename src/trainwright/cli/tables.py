"""Text in lines: tables as aligned columns, or as blocks where a terminal is too narrow; paragraphs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

BETWEEN = 2
"""Spaces between two columns."""


def narrowest(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """Returns the least width at which no word of a table is broken."""
    widest = [
        max((len(word) for text in column for word in text.split()), default=0) for column in _columns(columns, cells)
    ]
    return sum(widest) + BETWEEN * (len(columns) - 1)


def aligned(columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    """Yields a line for the names and one for each row; columns that are ``right`` stand right."""
    widths = [max(len(text) for text in column) for column in _columns(columns, cells)]
    for row in (columns, *cells):
        padded = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ]
        yield (" " * BETWEEN).join(padded).rstrip()


def blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], *, width: int) -> Iterator[str]:
    """Yields ``name: value`` for each cell that is not empty, wrapped to ``width``, and an empty line between rows."""
    for place, row in enumerate(cells):
        if place:
            yield ""
        for name, text in zip(columns, row, strict=True):
            if text:
                yield from wrapped(f"{name}: {text}" if name else text, width=width)


def wrapped(text: str, *, width: int, indent: str = "  ") -> list[str]:
    """Returns ``text`` in lines of at most ``width`` where its words allow that; further lines are indented."""
    return textwrap.wrap(
        text, max(width, len(indent) + 1), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def fitting(text: str, *, width: int | None) -> str:
    """Returns ``text`` with each line that is wider than ``width`` wrapped, two spaces further in than it begins."""
    if width is None:
        return text
    return "\n".join(
        part
        for line in text.split("\n")
        for part in (
            [line]
            if len(line) <= width
            else wrapped(line, width=width, indent=" " * (len(line) - len(line.lstrip()) + BETWEEN))
        )
    )


def paragraphs(text: str, *, width: int | None) -> str:
    """Returns ``text`` with the paragraphs that are wider than ``width`` wrapped; lines with columns stay apart."""
    if width is None:
        return text
    return "\n\n".join(_paragraph(paragraph, width) for paragraph in text.split("\n\n"))


def _paragraph(text: str, width: int) -> str:
    lines = text.splitlines()
    if all(len(line) <= width for line in lines):
        return text
    if any("  " in line for line in lines):
        return "\n".join(part for line in lines for part in wrapped(line, width=width, indent="    "))
    return "\n".join(wrapped(" ".join(lines), width=width, indent=""))


def _columns(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    return zip(columns, *cells, strict=True)
