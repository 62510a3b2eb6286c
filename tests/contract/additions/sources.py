"""A source that the project does not have: a key of each section of INI files. A recipe names it by the class."""

from __future__ import annotations

import configparser
from collections.abc import Iterator
from typing import BinaryIO

from pydantic import Field

from trainwright.core.errors import DataError
from trainwright.spec.sections.corpus.sources import PathsSection
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import Source, decoded


class IniSection(PathsSection):
    """The keys beside ``kind``."""

    key: str = Field("text", description="key that holds the text")


class Ini(Source[IniSection]):
    """One document for each section."""

    Section = IniSection

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        whole = decoded(stream.read(), "")
        if whole.text is None:
            yield whole
            return
        sections = configparser.ConfigParser(interpolation=None)
        try:
            sections.read_string(whole.text)
        except configparser.Error as error:
            raise DataError("no INI file", where=part.file.location) from error
        for name in sections.sections():
            text = sections[name].get(self.section.key, "")
            yield RawDocument(f", section {name}", len(text.encode()), text=text)
