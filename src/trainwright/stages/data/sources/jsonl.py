"""The source ``jsonl``: one JSON object per line."""

from __future__ import annotations

import io
import json
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, BinaryIO

from trainwright.spec.sections.corpus.sources import JsonlSource
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import BOM, SectionT, Source
from trainwright.stages.data.sources.labels import NAMES, NUMBER, number_of, set_of

HEAD_BYTES = 1 << 20


class JsonLines(Source[SectionT]):
    """A document in each line's object."""

    by_lines = True

    @property
    def patterns(self) -> tuple[str, ...]:
        """Returns names of JSON lines, plain and compressed."""
        return ("*.jsonl", "*.jsonl.gz", "*.jsonl.zst", "*.ndjson", "*.ndjson.gz", "*.ndjson.zst")

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the lines, named by number; those of a range by byte, because nobody counts the lines before it."""
        offset = _next_line(stream, part.start) if part.start else 0
        for number, line in enumerate(stream, 1):
            if part.stop is not None and offset >= part.stop:
                return
            position = f":{number}" if part.stop is None else f":byte {offset}"
            text = line.removeprefix(BOM) if offset == 0 else line
            offset += len(line)
            if not text.isspace():
                yield self._line(text, position)

    def head(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the lines that end in the first ``HEAD_BYTES``."""
        head = stream.read(HEAD_BYTES)
        whole_lines = head if not stream.read(1) else head[: head.rfind(b"\n") + 1]
        return self.read(io.BytesIO(whole_lines), part)

    @abstractmethod
    def document(self, value: dict[str, Any], position: str, size_bytes: int) -> RawDocument:
        """Returns the document that an object holds, or why it holds none."""

    def _line(self, line: bytes, position: str) -> RawDocument:
        try:
            value: Any = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            return RawDocument(position, len(line), problem="not UTF-8")
        except (ValueError, RecursionError):
            return RawDocument(position, len(line), problem="broken JSON")
        if not isinstance(value, dict):
            return RawDocument(position, len(line), problem="not a JSON object")
        return self.document(value, position, len(line))


class Jsonl(JsonLines[JsonlSource]):
    """The text under one key of each line's object."""

    Section = JsonlSource

    def document(self, value: dict[str, Any], position: str, size_bytes: int) -> RawDocument:
        """Returns the text, with its label where there is a key for it."""
        text_key, label_key = self.section.text_key, self.section.label_key
        text = value.get(text_key)
        if not isinstance(text, str):
            return RawDocument(position, size_bytes, problem=_unusable(value, text_key, "a string"))
        if label_key is None:
            return RawDocument(position, size_bytes, text=text)
        label = value.get(label_key)
        if self.section.label_kind != "name":
            listed, numeric = self.section.label_kind == "names", isinstance(label, int | float)
            read = set_of(label) if listed else number_of(label) if numeric else None
            if read is None:
                problem = _unusable(value, label_key, NAMES if listed else NUMBER)
                return RawDocument(position, size_bytes, problem=problem)
            return RawDocument(position, size_bytes, text=text, label=read)
        if isinstance(label, bool) or not isinstance(label, str | int) or label == "":
            problem = _unusable(value, label_key, "a string or whole number")
            return RawDocument(position, size_bytes, problem=problem)
        return RawDocument(position, size_bytes, text=text, label=str(label))


def _unusable(value: dict[str, Any], key: str, expected: str) -> str:
    return f"{key!r} is not {expected}" if key in value else f"no key {key!r}"


def _next_line(stream: BinaryIO, start: int) -> int:
    """Goes to the first line that starts at byte ``start`` or later; returns where that is."""
    stream.seek(start - 1)
    return start - 1 + len(stream.readline())
