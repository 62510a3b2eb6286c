"""A source that the project does not have: a column of CSV files. A recipe names it by the class."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO

from pydantic import Field

from trainwright.core.errors import DataError
from trainwright.spec.sections.data import PathsSection
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import Source, decoded


class CsvSection(PathsSection):
    """The keys beside ``kind``."""

    column: str = Field("text", description="column that holds the text")


class Csv(Source[CsvSection]):
    """One document for each row."""

    Section = CsvSection

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        whole = decoded(stream.read(), "")
        if whole.text is None:
            yield whole
            return
        rows = csv.DictReader(io.StringIO(whole.text, newline=""))
        if self.section.column not in (rows.fieldnames or ()):
            raise DataError("no such column", where=part.file.location, seen=repr(self.section.column))
        for row in rows:
            text = row[self.section.column] or ""
            yield RawDocument(f":{rows.line_num}", len(text.encode()), text=text)
