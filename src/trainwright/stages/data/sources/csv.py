"""The source ``csv``: a table as text, its first row the names of its columns (RFC 4180)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from trainwright.core.errors import DataError
from trainwright.spec.sections.corpus.sources import CsvSource
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import Source
from trainwright.stages.data.sources.labels import NUMBER, number_of, set_in

HEAD_BYTES = 1 << 20
LONGEST_FIELD = (1 << 31) - 1
"""Characters; Python's own limit of 131,072 is for all who read CSV in a process."""
SHOWN = 200
"""Characters of a first row in a message."""


class Csv(Source[CsvSource]):
    """The text in one column of each row. A field in quotes may hold delimiters, quotes and line ends."""

    Section = CsvSource

    @property
    def patterns(self) -> tuple[str, ...]:
        """Returns names of tables, plain and compressed."""
        return tuple(f"*.{kind}{packed}" for kind in ("csv", "tsv") for packed in ("", ".gz", ".zst"))

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the rows, named by the line in which they begin."""
        csv.field_size_limit(LONGEST_FIELD)
        # Bytes that are no UTF-8 become lone surrogates, so that they cost their own row alone.
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        try:
            rows = csv.reader(text, delimiter=self._delimiter(part))
            columns = next(rows, [])
            if not columns:
                return
            places = self._places(columns, part.file.location)
            line = rows.line_num + 1
            for row in rows:
                if row:
                    yield self._document(row, columns, places, f":{line}")
                line = rows.line_num + 1
        finally:
            text.detach()

    def head(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the rows that end in the first ``HEAD_BYTES``."""
        head = stream.read(HEAD_BYTES)
        rows = list(self.read(io.BytesIO(head), part))
        return iter(rows[:-1] if stream.read(1) else rows)

    def _delimiter(self, part: FileRange) -> str:
        if self.section.delimiter is not None:
            return self.section.delimiter
        return "\t" if ".tsv" in part.file.location.rpartition("/")[2] else ","

    def _places(self, columns: Sequence[str], location: str) -> tuple[int, int | None]:
        """Returns where texts and labels stand in a row."""
        label = self.section.label_column
        text = _place(columns, self.section.text_column, "text_column", location)
        return text, None if label is None else _place(columns, label, "label_column", location)

    def _document(
        self, row: Sequence[str], columns: Sequence[str], places: tuple[int, int | None], position: str
    ) -> RawDocument:
        """Returns the document of a row, or why it holds none."""
        size = sum(len(field.encode("utf-8", "surrogateescape")) + 1 for field in row)
        if len(row) != len(columns):
            return RawDocument(position, size, problem="another number of fields than the first row")
        text, label = row[places[0]], None if places[1] is None else row[places[1]].strip()
        if not _is_unicode(text) or not _is_unicode(label or ""):
            return RawDocument(position, size, problem="not UTF-8")
        if label is not None and self.section.label_kind == "names":
            return RawDocument(position, size, text=text, label=set_in(label, self.section.label_separator))
        if label == "":
            return RawDocument(position, size, problem=f"{self.section.label_column!r} is empty")
        if label is not None and self.section.label_kind == "number":
            number = number_of(label)
            if number is None:
                return RawDocument(position, size, problem=f"{self.section.label_column!r} is not {NUMBER}")
            return RawDocument(position, size, text=text, label=number)
        return RawDocument(position, size, text=text, label=label)


def _place(columns: Sequence[str], column: str, key: str, location: str) -> int:
    seen = ", ".join(columns)
    seen = seen if len(seen) <= SHOWN else f"{seen[:SHOWN]}..."
    if column not in columns:
        fix = f"set {key}, or the delimiter"
        raise DataError("this table has no column {column!r}", where=location, seen=repr(seen), fix=fix, column=column)
    if columns.count(column) > 1:
        what, fix = "several columns are called {column!r}", "rename one of them"
        raise DataError(what, where=location, seen=repr(seen), fix=fix, column=column)
    return columns.index(column)


def _is_unicode(text: str) -> bool:
    """Returns False where bytes of another encoding stand in a text."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
