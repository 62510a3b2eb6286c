"""What every source is: a description of the files to take, and a reader of one file.

A plug-in is such a class with settings of its own; a recipe names it as ``kind: package.module:Class`` and the class
says by ``Section`` which keys stand beside ``kind``. ``trainwright.testing.contract_source`` tests what it promises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import BinaryIO, ClassVar, Generic, TypeVar

from trainwright.spec.sections.corpus.sources import SourceSection
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange, RawDocument

SectionT = TypeVar("SectionT", bound=SourceSection)

BOM = b"\xef\xbb\xbf"


class Source(ABC, Generic[SectionT]):
    """Lists and reads one kind of source. The stage opens, decompresses and checks the files.

    Attributes:
        Section: the class of the settings, which validates the recipe's keys.
        by_lines: a document is a line, so that a large plain file may be read in ranges.
        ignored_folders: names of directories that are not entered.
        documents: how many it has, where that is known before anything is read.

    Args:
        section: the settings.
    """

    Section: ClassVar[type[SourceSection]]
    by_lines: ClassVar[bool] = False
    ignored_folders: ClassVar[frozenset[str]] = frozenset()
    documents: ClassVar[int | None] = None

    def __init__(self, section: SectionT) -> None:
        self.section = section

    @property
    def paths(self) -> tuple[str, ...]:
        """Files, directories, patterns and URLs; ``paths`` of the section where it has that key."""
        paths: tuple[str, ...] = getattr(self.section, "paths", ())
        return paths

    @property
    def patterns(self) -> tuple[str, ...]:
        """Returns names that are taken from a directory."""
        return ("*",)

    @abstractmethod
    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the documents of one file in order; a broken one never stops its neighbours.

        The result is a function of the bytes and the settings alone. An interrupted run reads the file again from its
        beginning and expects the same documents.

        Args:
            stream: the decompressed bytes.
            part: which file it is, and for a source ``by_lines`` which range of it.

        Raises:
            DataError: the settings do not suit this file.
        """

    def label(self, file: CorpusFile) -> str | None:
        """Returns the label of all documents in a file, where its name tells it."""
        del file
        return None

    def head(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the first documents of a file as far as a small read tells them; none where it tells nothing.

        It is asked before anything runs, so that settings that suit no document are known at once. Raises as ``read``.
        """
        del stream, part
        return iter(())

    def flawed(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields records without a document that a file's own index counts; none where it has no such index.

        It is asked where ``head`` is. Raises as ``read``.
        """
        del stream, part
        return iter(())


def decoded(data: bytes, position: str, offset: int = 0) -> RawDocument:
    """Returns UTF-8 bytes as a document; one that is not UTF-8 is placed by the byte, counted from ``offset``."""
    try:
        return RawDocument(position, len(data), text=data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return RawDocument(f":byte {offset + error.start}", len(data), problem="not UTF-8")
