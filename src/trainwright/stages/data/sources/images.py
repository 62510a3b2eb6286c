"""The source ``images``: files in folders, of which each is called like a class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO

from trainwright.spec.sections.corpus.sources import ImagesSource
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange, RawDocument
from trainwright.stages.data.images.pixels import Undecodable, decoded
from trainwright.stages.data.sources.base import Source


class Images(Source[ImagesSource]):
    """One image a file; its class is the first folder below the path that the recipe names."""

    Section = ImagesSource

    @property
    def patterns(self) -> tuple[str, ...]:
        """Returns the section's ``include``."""
        return self.section.include

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the image of the file."""
        label = self.label(part.file)
        if label is None:
            yield RawDocument("", part.file.size_bytes, problem="in no folder that could be its class")
            return
        try:
            yield RawDocument("", part.file.size_bytes, label=label, pixels=decoded(stream))
        except Undecodable as problem:
            yield RawDocument("", part.file.size_bytes, problem=str(problem))

    def head(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the image of the file."""
        return self.read(stream, part)

    def label(self, file: CorpusFile) -> str | None:
        """Returns the class of a file's image; None where it lies in no folder."""
        folders = PurePosixPath(file.name).parts[:-1]
        # Of several paths each file's name begins with the number of its path.
        return next(iter(folders[len(self.paths) > 1 :]), None)
