"""What a corpus consists of: files, ranges of them, and the documents as they stand there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.stages.data.corpus.remote import is_url

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusFile:
    """One file of the corpus. Files are ordered by (``source``, ``name``).

    Attributes:
        source: index in ``data.sources``.
        name: the path relative to what the recipe names.
        location: the local path or the URL.
        size_bytes: the size as stored.
        version: changes when the content may have changed: facts of the file system, or a remote file's checksum.
        blocks: sha256 of each block, 32 bytes each, joined; empty before the file is hashed, and for a remote file.
    """

    source: int
    name: str
    location: str
    size_bytes: int
    version: str
    blocks: bytes = b""

    @property
    def remote(self) -> bool:
        """Returns whether fsspec opens it."""
        return is_url(self.location)


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedFile:
    """A file that matches the recipe and cannot be a part of the corpus; ``reason`` is counted in the report."""

    source: int
    name: str
    location: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRange:
    """A file, or the lines of it that start in bytes ``start`` to ``stop``; everything when ``stop`` is None."""

    file: CorpusFile
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class RawDocument:
    """One document as it stands in a file: its ``text``, or its ``pixels``, or the ``problem`` why there is neither.

    Pixels are bytes of the shape ``[high, wide]`` where they are grey, ``[high, wide, 3]`` where they have colours.

    ``position`` follows the file's name in messages (``:12``, ``, row 3``); ``size_bytes`` is its size as read. A
    document of a source with labels has its ``label``, which is never empty. Documents of one ``group`` are on one side
    of the split; without one the content decides.
    """

    position: str
    size_bytes: int
    text: str | None = None
    problem: str | None = None
    label: str | None = None
    pixels: NDArray[np.uint8] | None = None
    group: str | None = None

    @property
    def whole(self) -> bool:
        """Returns whether it is a document."""
        return self.text is not None or self.pixels is not None
