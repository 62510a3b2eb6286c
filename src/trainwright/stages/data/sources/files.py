"""Sources in which a file is one document."""

from __future__ import annotations

import io
import sysconfig
import tokenize
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

from trainwright.spec.sections.corpus.sources import FilesSource, PythonSource
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import SectionT, Source, decoded


class Files(Source[FilesSource]):
    """Whole files in UTF-8."""

    Section = FilesSource

    @property
    def patterns(self) -> tuple[str, ...]:
        """Returns the section's ``include``."""
        return self.section.include

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the file."""
        del part
        yield decoded(stream.read(), "")


class PythonLibrary(Source[SectionT]):
    """The files of the running Python's own library."""

    ignored_folders = frozenset({"site-packages", "dist-packages", "__pycache__", "_bundled"})

    @property
    def paths(self) -> tuple[str, ...]:
        """Where this Python keeps its library."""
        return self.library()

    @staticmethod
    @cache
    def library() -> tuple[str, ...]:
        """Returns the folders of the running Python's library."""
        return (sysconfig.get_path("stdlib"),)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Python files."""
        return ("*.py",)


class PythonStdlib(PythonLibrary[PythonSource]):
    """The running Python's own library, a document to a file."""

    Section = PythonSource

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the file, decoded as Python does."""
        del part
        yield python_document(stream.read())


def python_document(data: bytes) -> RawDocument:
    """Returns a Python file as a document, decoded as Python does, or why it is none."""
    try:
        return RawDocument("", len(data), text=decode_python(data))
    except UnicodeDecodeError as error:
        problem = "not UTF-8" if error.encoding.startswith("utf") else f"not {error.encoding}"
        return RawDocument(f":byte {error.start}", len(data), problem=problem)
    except (SyntaxError, LookupError, UnicodeError):
        return RawDocument("", len(data), problem="unknown or contradictory source encoding")


def decode_python(data: bytes) -> str:
    """Returns a Python file's text, decoded as Python itself does (PEP 263).

    Raises:
        SyntaxError, LookupError, UnicodeError: it is not decodable.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding)
