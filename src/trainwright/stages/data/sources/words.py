"""The sources ``words`` (lines of JSON, rows of Parquet) and ``conll`` (a word to a line): words with a label each."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from trainwright.spec.sections.corpus.words import ConllSource, WordsSource
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import BOM, Source
from trainwright.stages.data.sources.chats import Records
from trainwright.stages.data.words.records import NoSentence, sentence

HEAD_BYTES = 1 << 20
BEGINS_DOCUMENT = "-DOCSTART-"
"""The word of a line that begins a document, and is no word of it."""


class Words(Records[WordsSource]):
    """A sentence in each object or row."""

    Section = WordsSource

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the keys of words and labels."""
        return (self.section.words_key, self.section.labels_key)

    def form(self, value: dict[str, Any]) -> str:
        """Returns the form of the sentence in an object. Raises ``NoSentence``."""
        return self._sentence(value)[0]

    def document(self, value: dict[str, Any], position: str, size_bytes: int) -> RawDocument:
        """Returns the sentence with the labels of its words, or why the object holds none."""
        try:
            form, label = self._sentence(value)
        except NoSentence as reason:
            return RawDocument(position, size_bytes, problem=str(reason))
        return RawDocument(position, size_bytes, text=form, label=label)

    def _sentence(self, value: dict[str, Any]) -> tuple[str, str]:
        missing = next((key for key in self.columns if key not in value), None)
        if missing is not None:
            raise NoSentence(f"no key {missing!r}")
        return sentence(*(value[key] for key in self.columns))


class Conll(Source[ConllSource]):
    """Sentences between blank lines; a line is a word, with other columns between it and its label."""

    Section = ConllSource

    @property
    def patterns(self) -> tuple[str, ...]:
        """Returns the section's ``include``."""
        return self.section.include

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the sentences, named by their first lines."""
        del part
        lines: list[bytes] = []
        first = 1
        for number, line in enumerate(stream, 1):
            data = line.removeprefix(BOM) if number == 1 else line
            if data.strip():
                first = first if lines else number
                lines.append(data)
            elif lines:
                yield from self._sentence(lines, first)
                lines = []
        if lines:
            yield from self._sentence(lines, first)

    def head(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the sentences that end in the first ``HEAD_BYTES``."""
        found = list(self.read(io.BytesIO(stream.read(HEAD_BYTES)), part))
        return iter(found[:-1] if stream.read(1) else found)

    def _sentence(self, lines: Sequence[bytes], first: int) -> Iterator[RawDocument]:
        """Yields the sentence of some lines, or why they are none; nothing of lines that begin a document."""
        position, size = f":{first}", sum(map(len, lines))
        try:
            rows = [_columns(line.decode("utf-8").strip("\r\n")) for line in lines]
            pairs = [self._word(row) for row in rows if row[0] != BEGINS_DOCUMENT]
            if pairs:
                form, label = sentence([word for word, _ in pairs], [label for _, label in pairs])
                yield RawDocument(position, size, text=form, label=label)
        except UnicodeDecodeError:
            yield RawDocument(position, size, problem="not UTF-8")
        except NoSentence as reason:
            yield RawDocument(position, size, problem=str(reason))

    def _word(self, row: Sequence[str]) -> tuple[str, str]:
        """Returns a word and its label."""
        places = (self.section.word_column, self.section.tag_column)
        if len({place % len(row) for place in places}) < 2 or not all(-len(row) <= at < len(row) for at in places):
            raise NoSentence("a line has too few columns")
        return row[places[0]].strip(), row[places[1]].strip()


def _columns(line: str) -> list[str]:
    """Returns the columns of a line: between tabs where there are any, so that a word may hold spaces; else spaces."""
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
