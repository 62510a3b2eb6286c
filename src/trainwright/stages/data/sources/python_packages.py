"""The source ``python-stdlib-packages``: pieces of the running Python's library, labelled by the package they are of.

Files are read and never imported. All pieces of a file are in one split, so that a piece cannot be told by its
neighbours; of a file's name and path nothing is in the text but what the file says of itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from trainwright.spec.sections.corpus.sources import PythonPackagesSource
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange, RawDocument
from trainwright.stages.data.sources.files import PythonLibrary, python_document
from trainwright.stages.data.sources.python_syntax import TEST_FOLDERS


class PythonStdlibPackages(PythonLibrary[PythonPackagesSource]):
    """Pieces of some packages' files; their tests are left out."""

    Section = PythonPackagesSource
    ignored_folders = PythonLibrary.ignored_folders | TEST_FOLDERS

    @property
    def paths(self) -> tuple[str, ...]:
        """Returns the packages' folders, in the section's order."""
        return tuple(str(Path(folder, name)) for folder in self.library() for name in self.section.packages)

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the pieces of a file, named by their first lines."""
        whole = python_document(stream.read())
        if whole.text is None:
            yield whole
            return
        label = self.label(part.file)
        group = f"{label}/{_below(part.file)}"
        for first, text in pieces(whole.text.splitlines(keepends=True), self.section.lines):
            yield RawDocument(f":{first}", len(text.encode()), text=text, label=label, group=group)

    def label(self, file: CorpusFile) -> str:
        """Returns the package, of which the number begins the file's name."""
        return self.section.packages[int(file.name.partition("/")[0])]


def pieces(lines: Sequence[str], size: int) -> Iterator[tuple[int, str]]:
    """Yields the number of the first line and the text of each piece: about ``size`` lines each, all about equal."""
    count = max(1, round(len(lines) / size))
    for number in range(count):
        first, stop = number * len(lines) // count, (number + 1) * len(lines) // count
        yield first + 1, "".join(lines[first:stop])


def _below(file: CorpusFile) -> str:
    return file.name.partition("/")[2]
