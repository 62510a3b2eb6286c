"""The receiver of rendered text: a terminal, a file, or a page of a web console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TextIO


def colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Returns whether a stream is a terminal that wants colours (https://no-color.org)."""
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb" and stream.isatty()


def without_empty(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns a table without the columns in which no row says anything."""
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    return tuple(columns[place] for place in kept), [tuple(row[place] for place in kept) for row in rows]


class Page(Protocol):
    """Takes headings, lines and tables, from top to bottom."""

    @property
    def verbose(self) -> bool:
        """Returns whether the reader asked for everything, however long."""

    def heading(self, text: str) -> None:
        """Adds a line that begins a part."""

    def line(self, text: str = "") -> None:
        """Adds a line; an empty one parts what is above from what is below."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
        """Adds rows under column names; None is an empty cell."""

    def note(self, text: str) -> None:
        """Adds a remark beside the answer."""
