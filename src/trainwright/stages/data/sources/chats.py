"""The sources ``chats`` and ``preferences``: lines of JSON, or rows of Parquet files (``*.parquet``)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, BinaryIO

from trainwright.spec.sections.corpus.sources import ChatsSource, PreferencesSource
from trainwright.stages.data.chats.records import MESSAGES_KEYS, NoChat, chat_form, preference_form
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import SectionT
from trainwright.stages.data.sources.jsonl import JsonLines
from trainwright.stages.data.sources.parquet import PARQUET, parquet_rows


class Records(JsonLines[SectionT]):
    """Objects of which each is one example."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Returns names of JSON lines and Parquet files, plain and compressed."""
        return (*super().patterns, *PARQUET)

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Returns the keys that are looked at."""

    @abstractmethod
    def form(self, value: dict[str, Any]) -> str:
        """Returns the form of an example. Raises ``NoChat``."""

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the lines, or the rows, numbered from 0; rows lie in no range of bytes, and the first one has all."""
        if not _is_parquet(part):
            yield from super().read(stream, part)
            return
        for number, row in enumerate(() if part.start else parquet_rows(stream, self.columns)):
            size_bytes = sum(len(str(value)) for value in row.values() if value is not None)
            yield self.document(row, f", row {number}", size_bytes)

    def head(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the first lines; nothing of Parquet, whose rows are read in large groups."""
        return iter(()) if _is_parquet(part) else super().head(stream, part)

    def document(self, value: dict[str, Any], position: str, size_bytes: int) -> RawDocument:
        """Returns the example's form, or why the object holds none."""
        try:
            return RawDocument(position, size_bytes, text=self.form(value))
        except NoChat as reason:
            return RawDocument(position, size_bytes, problem=str(reason))


class Chats(Records[ChatsSource]):
    """Chats."""

    Section = ChatsSource

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the keys of messages, or of a question and its answer."""
        section = self.section
        if section.messages_key is not None:
            return (section.messages_key,)
        return (*MESSAGES_KEYS, section.prompt_key, section.answer_key)

    def form(self, value: dict[str, Any]) -> str:
        """Returns the chat's form. Raises ``NoChat``."""
        return chat_form(value, self.section)


class Preferences(Records[PreferencesSource]):
    """Two answers to one question."""

    Section = PreferencesSource

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the keys of the prompt and of both answers."""
        return (self.section.prompt_key, self.section.chosen_key, self.section.rejected_key)

    def form(self, value: dict[str, Any]) -> str:
        """Returns the form of both chats. Raises ``NoChat``."""
        return preference_form(value, self.section)


def _is_parquet(part: FileRange) -> bool:
    return part.file.location.removesuffix(".gz").removesuffix(".zst").endswith(".parquet")
