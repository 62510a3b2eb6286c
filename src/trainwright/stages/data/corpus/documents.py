"""The documents of a file, whatever its source: opened, decompressed, checked against its digests, and read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.core.errors import DataError
from trainwright.core.plug_in import blaming
from trainwright.spec.sections.corpus.sources import SourceSection
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.corpus.streams import BrokenStream, opened
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.sources.base import Source


def raw_documents(part: FileRange, section: SourceSection) -> Iterator[RawDocument]:
    """Yields the documents of a file in order; a file that does not decompress ends with its problem.

    Raises:
        DataError: the file cannot be read at all or changed, its source cannot read it, or a plug-in failed.
    """
    source: Source[Any] = source_of(section)
    with blaming(section.kind, where=str(part.file.location), error_class=DataError), opened(part.file) as stream:
        try:
            yield from source.read(stream, part)
        except BrokenStream as broken:
            yield RawDocument("", 0, problem=broken.reason)
