"""The source ``parquet``: one document per row. pyarrow is imported when a file is read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from trainwright.core.errors import DataError
from trainwright.spec.sections.corpus.labels import LabelKind
from trainwright.spec.sections.corpus.sources import ParquetSource
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.corpus.streams import BrokenStream
from trainwright.stages.data.optional import need
from trainwright.stages.data.sources.base import Source
from trainwright.stages.data.sources.labels import NAMES, NUMBER, number_of, set_in, set_of

READING = "reading Parquet files"
PARQUET = ("*.parquet", "*.parquet.gz", "*.parquet.zst")


class Parquet(Source[ParquetSource]):
    """The text in one column of each row."""

    Section = ParquetSource

    @property
    def patterns(self) -> tuple[str, ...]:
        """Returns names of Parquet files, plain and compressed."""
        return PARQUET

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the rows, numbered from 0."""
        arrow, column, label = need("pyarrow", needed_for=READING), self.section.text_column, self.section.label_column
        columns = [column] if label is None else list(dict.fromkeys((column, label)))
        with _damage(arrow):
            table = self._table(stream, part)
            number = 0
            for batch in table.iter_batches(batch_size=1024, columns=columns, use_threads=False):
                texts = batch.column(column).cast(arrow.large_binary()).to_pylist()
                labels = [None] * len(texts) if label is None else batch.column(label).to_pylist()
                for data, value in zip(texts, labels, strict=True):
                    yield _row(data, number) if label is None else self._labelled(_row(data, number), value, label)
                    number += 1

    def head(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields nothing, for rows are read in large groups; the column is checked."""
        with _damage(need("pyarrow", needed_for=READING)):
            self._table(stream, part)
        return iter(())

    def flawed(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields how many rows have no text, by the statistics of the file's footer."""
        with _damage(need("pyarrow", needed_for=READING)):
            table = self._table(stream, part)
            nulls, rows = _nulls(table.metadata, self.section.text_column), table.metadata.num_rows
        if nulls:
            yield RawDocument(f", {nulls:,} of {rows:,} rows", 0, problem="null text")

    def _table(self, stream: BinaryIO, part: FileRange) -> Any:
        table = _opened(stream)
        _check_column(table.schema_arrow, part.file.location, self.section.text_column)
        label = self.section.label_column
        if label is not None:
            kind = self.section.label_kind
            _check_column(table.schema_arrow, part.file.location, label, key="label_column", labels=kind)
        return table

    def _labelled(self, row: RawDocument, value: Any, column: str) -> RawDocument:
        """Returns a row with its label, its set of labels or its number, or why it has none."""
        if self.section.label_kind == "number" and value is not None:
            return _numbered(row, value, column)
        if row.problem is None and isinstance(value, list):
            names = set_of(value)
            if names is None:
                return RawDocument(row.position, row.size_bytes, problem=f"{column!r} is not {NAMES}")
            return RawDocument(row.position, row.size_bytes, text=row.text, label=names)
        if self.section.label_kind == "name" or value is None:
            return _labelled(row, value, column)
        if isinstance(value, str) and not value.strip():
            return RawDocument(
                row.position, row.size_bytes, text=row.text, label=set_in("", self.section.label_separator)
            )
        named = _labelled(row, value, column)
        if named.label is None:
            return named
        names = set_in(named.label, self.section.label_separator)
        return RawDocument(row.position, row.size_bytes, text=row.text, label=names)


def parquet_rows(stream: BinaryIO, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yields the rows, with those of the columns that the file has.

    Raises:
        MissingPackage: pyarrow is not installed.
        BrokenStream: the file is damaged.
    """
    with _damage(need("pyarrow", needed_for=READING)):
        table = _opened(stream)
        there = [name for name in table.schema_arrow.names if name in columns]
        for batch in table.iter_batches(batch_size=1024, columns=there, use_threads=False):
            yield from batch.to_pylist()


def _opened(stream: BinaryIO) -> Any:
    """Returns the file. Parquet is read from its end: a compressed one is unpacked first."""
    seekable = stream if stream.seekable() else io.BytesIO(stream.read())
    return need("pyarrow.parquet", needed_for=READING).ParquetFile(seekable)


@contextmanager
def _damage(arrow: Any) -> Iterator[None]:
    """Turns what Arrow raises for a damaged file into ``BrokenStream``."""
    try:
        yield
    except arrow.ArrowException as error:
        raise BrokenStream("damaged Parquet") from error
    except OSError as error:
        # Arrow reports damaged pages as OSError without an errno; the operating system's own errors have one.
        if error.errno is not None:
            raise
        raise BrokenStream("damaged Parquet") from error


def _check_column(
    schema: Any, location: str, column: str, *, key: str = "text_column", labels: LabelKind = "name"
) -> None:
    if column not in schema.names:
        raise DataError(
            "this Parquet file has no column {column!r}",
            where=location,
            seen=", ".join(schema.names),
            fix=f"set {key}",
            column=column,
        )
    if schema.names.count(column) > 1:
        what, fix = "several columns are called {column!r}", "rename one of them"
        raise DataError(what, where=location, seen=", ".join(schema.names), fix=fix, column=column)
    kind = schema.field(column).type
    types = need("pyarrow", needed_for=READING).types
    if labels == "names" and (types.is_list(kind) or types.is_large_list(kind)):
        kind = kind.value_type
    numbered = key == "label_column" and (types.is_integer(kind) or (labels == "number" and _is_number(kind)))
    if not _is_text(kind) and not numbered:
        what = "column {column!r} holds no text" if key == "text_column" else "column {column!r} holds no labels"
        expected = "string or binary" if key == "text_column" else "string, binary or whole numbers"
        expected = "numbers" if labels == "number" else expected
        raise DataError(what, where=location, seen=str(kind), expected=expected, column=column)


def _is_number(kind: Any) -> bool:
    types = need("pyarrow", needed_for=READING).types
    return bool(types.is_floating(kind) or types.is_decimal(kind))


def _nulls(metadata: Any, column: str) -> int:
    """Returns how many rows have a null in a column, by the statistics of those row groups that have some."""
    place = next((each for each in range(metadata.num_columns) if metadata.schema.column(each).path == column), None)
    chunks = (
        () if place is None else (metadata.row_group(each).column(place) for each in range(metadata.num_row_groups))
    )
    counted = (chunk.statistics for chunk in chunks if chunk.is_stats_set)
    return sum(each.null_count for each in counted if each.has_null_count)


def _is_text(kind: Any) -> bool:
    """Returns whether Arrow's type is text or bytes, as they stand or as a dictionary of them."""
    types = need("pyarrow", needed_for=READING).types
    value = kind.value_type if types.is_dictionary(kind) else kind
    names = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return any(getattr(types, f"is_{name}")(value) for name in names)


def _numbered(row: RawDocument, value: Any, column: str) -> RawDocument:
    """Returns a row with its number, or why it has none."""
    if row.problem is not None:
        return row
    number = number_of(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    if number is None:
        return RawDocument(row.position, row.size_bytes, problem=f"{column!r} is not {NUMBER}")
    return RawDocument(row.position, row.size_bytes, text=row.text, label=number)


def _labelled(row: RawDocument, value: str | bytes | int | None, column: str) -> RawDocument:
    """Returns a row with its label, or why it has none."""
    if row.problem is not None:
        return row
    try:
        label = "" if value is None else value.decode("utf-8") if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        return RawDocument(row.position, row.size_bytes, problem="not UTF-8")
    if not label.strip():
        return RawDocument(row.position, row.size_bytes, problem=f"{column!r} is empty")
    return RawDocument(row.position, row.size_bytes, text=row.text, label=label.strip())


def _row(data: bytes | None, number: int) -> RawDocument:
    position = f", row {number}"
    if data is None:
        return RawDocument(position, 0, problem="null text")
    try:
        return RawDocument(position, len(data), text=data.decode("utf-8"))
    except UnicodeDecodeError:
        return RawDocument(position, len(data), problem="not UTF-8")
