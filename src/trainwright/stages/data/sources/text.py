"""The source ``text``: many documents in a file, with a separator between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from trainwright.spec.sections.corpus.sources import TextSource
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import Source, decoded

_CHUNK_BYTES = 1 << 20


class Text(Source[TextSource]):
    """Pieces between separators. A file with Windows line ends has them in its separators too."""

    Section = TextSource

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the pieces, numbered from 1."""
        del part
        pending = stream.read(_CHUNK_BYTES)
        separator = self._separator(pending)
        number, offset = 0, 0
        while True:
            chunk = stream.read(_CHUNK_BYTES)
            *complete, pending = pending.split(separator)
            for piece in complete:
                number += 1
                yield decoded(piece, f", document {number}", offset)
                offset += len(piece) + len(separator)
            if not chunk:
                break
            pending += chunk
        if pending:
            yield decoded(pending, f", document {number + 1}", offset)

    def _separator(self, beginning: bytes) -> bytes:
        line_end = beginning.find(b"\n")
        windows = line_end > 0 and beginning[line_end - 1] == 0x0D
        text = self.section.separator
        return (text.replace("\n", "\r\n") if windows else text).encode()
