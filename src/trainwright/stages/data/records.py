"""Records of every kind of source: the text, or why there is none. A broken record never stops its neighbours."""

from __future__ import annotations

import io
import json
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from trainwright.core.errors import DataError
from trainwright.spec.recipe_data import FilesSource, JsonlSource, ParquetSource, PythonStdlibSource, Source, TextSource
from trainwright.stages.data.optional import need
from trainwright.stages.data.sources import InputFile
from trainwright.stages.data.streams import BrokenStream, opened

_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """One document as found. Exactly one of ``text`` and ``problem`` is given.

    ``position`` follows the file's name in messages (``:12``, ``, row 3``); ``size_bytes`` is its size as read.
    """

    position: str
    size_bytes: int
    text: str | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRange:
    """Lines that start in bytes ``start`` to ``stop`` of a file; everything when ``stop`` is None."""

    file: InputFile
    start: int = 0
    stop: int | None = None


def read_records(part: FileRange, source: Source) -> Iterator[Record]:
    """The records of a file in order.

    Raises:
        DataError: the file cannot be read at all, or a Parquet file has no such column.
    """
    file = part.file
    try:
        if isinstance(source, PythonStdlibSource):
            yield from _whole(file, decode_python)
        elif isinstance(source, FilesSource):
            yield from _whole(file, lambda data: data.decode("utf-8"))
        elif isinstance(source, TextSource):
            yield from _separated(file, source.separator)
        elif isinstance(source, JsonlSource):
            yield from _json_lines(part, source.text_key)
        else:
            yield from _rows(file, source)
    except BrokenStream as broken:
        yield Record("", 0, problem=broken.reason)


def decode_python(data: bytes) -> str:
    """A Python file's text, decoded as Python itself does (PEP 263).

    Raises:
        SyntaxError, LookupError, UnicodeError: it is not decodable.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding)


def _whole(file: InputFile, decode: Callable[[bytes], str]) -> Iterator[Record]:
    with opened(file) as stream:
        data = stream.read()
    try:
        yield Record("", len(data), text=decode(data))
    except UnicodeDecodeError as error:
        problem = "not UTF-8" if error.encoding.startswith("utf") else f"not {error.encoding}"
        yield Record(f":byte {error.start}", len(data), problem=problem)
    except (SyntaxError, LookupError, UnicodeError):
        yield Record("", len(data), problem="unknown or contradictory source encoding")


def _decoded(data: bytes, position: str, offset: int) -> Record:
    try:
        return Record(position, len(data), text=data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Record(f":byte {offset + error.start}", len(data), problem="not UTF-8")


def _separated(file: InputFile, separator_text: str) -> Iterator[Record]:
    """Pieces between separators. A file with Windows line ends has them in its separators too."""
    with opened(file) as stream:
        pending = stream.read(_CHUNK_BYTES)
        line_end = pending.find(b"\n")
        windows = line_end > 0 and pending[line_end - 1] == 0x0D
        separator = (separator_text.replace("\n", "\r\n") if windows else separator_text).encode()
        number, offset = 0, 0
        while True:
            chunk = stream.read(_CHUNK_BYTES)
            *complete, pending = pending.split(separator)
            for piece in complete:
                number += 1
                yield _decoded(piece, f", document {number}", offset)
                offset += len(piece) + len(separator)
            if not chunk:
                break
            pending += chunk
        if pending:
            yield _decoded(pending, f", document {number + 1}", offset)


# --------------------------------------------------------------------------------------------------------------- jsonl
def _json_lines(part: FileRange, key: str) -> Iterator[Record]:
    """Lines are named by number; those of a range by byte, because nobody counts the lines before it."""
    with opened(part.file) as stream:
        offset = _next_line(stream, part.start) if part.start else 0
        for number, line in enumerate(stream, 1):
            if part.stop is not None and offset >= part.stop:
                return
            position = f":{number}" if part.stop is None else f":byte {offset}"
            text = line.removeprefix(_BOM) if offset == 0 else line
            offset += len(line)
            if not text.isspace():
                yield _json_record(text, position, key)


def _next_line(stream: BinaryIO, start: int) -> int:
    """Go to the first line that starts at byte ``start`` or later; returns where that is."""
    stream.seek(start - 1)
    return start - 1 + len(stream.readline())


def _json_record(line: bytes, position: str, key: str) -> Record:
    try:
        value: Any = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return Record(position, len(line), problem="not UTF-8")
    except (ValueError, RecursionError):
        return Record(position, len(line), problem="broken JSON")
    if not isinstance(value, dict):
        return Record(position, len(line), problem="not a JSON object")
    text = value.get(key)
    if isinstance(text, str):
        return Record(position, len(line), text=text)
    problem = f"no key {key!r}" if key not in value else f"{key!r} is not a string"
    return Record(position, len(line), problem=problem)


# ------------------------------------------------------------------------------------------------------------- parquet
def _rows(file: InputFile, source: ParquetSource) -> Iterator[Record]:
    arrow = need("pyarrow", needed_for="reading Parquet files")
    parquet = need("pyarrow.parquet", needed_for="reading Parquet files")
    with opened(file) as stream:
        # Parquet is read from its end: a compressed file is unpacked first.
        seekable = stream if stream.seekable() else io.BytesIO(stream.read())
        try:
            table = parquet.ParquetFile(seekable)
            _check_column(table.schema_arrow, arrow, file, source.text_column)
            number = 0
            for batch in table.iter_batches(batch_size=1024, columns=[source.text_column], use_threads=False):
                for data in batch.column(0).cast(arrow.large_binary()).to_pylist():
                    yield _row(data, number)
                    number += 1
        except arrow.ArrowException as error:
            raise BrokenStream("damaged Parquet") from error
        except OSError as error:
            # Arrow reports damaged pages as OSError without an errno; the operating system's own errors have one.
            if error.errno is not None:
                raise
            raise BrokenStream("damaged Parquet") from error


def _check_column(schema: Any, arrow: Any, file: InputFile, column: str) -> None:
    if column not in schema.names:
        raise DataError(
            f"this Parquet file has no column {column!r}", where=file.location,
            seen=", ".join(schema.names), fix="set text_column",
        )  # fmt: skip
    kind = schema.field(column).type
    types = arrow.types
    if not any(test(kind) for test in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)):
        raise DataError(
            f"column {column!r} holds no text", where=file.location, seen=str(kind), expected="string or binary"
        )


def _row(data: bytes | None, number: int) -> Record:
    position = f", row {number}"
    if data is None:
        return Record(position, 0, problem="null text")
    try:
        return Record(position, len(data), text=data.decode("utf-8"))
    except UnicodeDecodeError:
        return Record(position, len(data), problem="not UTF-8")
