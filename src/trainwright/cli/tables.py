"""Text in lines: tables as aligned columns, or as blocks where a terminal is too narrow; paragraphs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

BETWEEN = 2
"""Spaces between two columns."""
NARROW = 24
"""Characters below which a column of text reads worse than a line of its own."""


def longest_words(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    """Returns the length of the longest word of each column."""
    return [
        max((len(word) for text in column for word in text.split()), default=0) for column in _columns(columns, cells)
    ]


def shared(columns: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Returns a width for each column, together ``room`` at most where words allow that: none breaks a word of its own.

    What the longest words leave goes to columns that want more, each as much as the others until it has its whole text.
    """
    widths = longest_words(columns, cells)
    whole = [max(map(len, column)) for column in _columns(columns, cells)]
    left = room - sum(widths)
    while left > 0 and (wanting := [place for place, width in enumerate(widths) if width < whole[place]]):
        for place in wanting[:left]:
            widths[place] += 1
        left -= len(wanting[:left])
    return widths


def aligned(columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    """Yields a line for the names and one for each row; columns that are ``right`` stand right."""
    widths = [max(len(text) for text in column) for column in _columns(columns, cells)]
    for row in (columns, *cells):
        padded = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ]
        yield (" " * BETWEEN).join(padded).rstrip()


def hanging(columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], width: int) -> list[str]:
    """Returns the lines of ``aligned`` with the last column wrapped so that all are ``width`` wide at most.

    None at all where that column would be narrower than ``NARROW`` or than a word of it, or stands right.
    """
    *others, last = _columns(columns, cells)
    begin = sum(max(map(len, column)) + BETWEEN for column in others)
    if right[-1] or width - begin < max(NARROW, *(len(word) for text in last for word in ("", *text.split()))):
        return []
    parts = [wrapped(text, width=width - begin, indent="") or [""] for text in last]
    short = [[*row[:-1], lines[0]] for row, lines in zip(cells, parts[1:], strict=True)]
    above = aligned([*columns[:-1], parts[0][0]], short, right)
    return [
        line
        for first, lines in zip(above, parts, strict=True)
        for line in (first, *(" " * begin + more for more in lines[1:]))
    ]


def blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], *, width: int) -> Iterator[str]:
    """Yields ``name: value`` for each cell that is not empty, as many in a line of ``width`` as it holds whole.

    A cell that is longer is wrapped; an empty line stands between rows.
    """
    for place, row in enumerate(cells):
        if place:
            yield ""
        pairs = [f"{name}: {text}" if name else text for name, text in zip(columns, row, strict=True) if text]
        line = ""
        for pair in pairs:
            joined = f"{line}{' ' * BETWEEN}{pair}" if line else pair
            if line and len(joined) > width:
                yield from wrapped(line, width=width)
                joined = pair
            line = joined
        yield from wrapped(line, width=width)


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
