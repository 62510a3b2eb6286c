"""What a first look at a source tells: its columns, its classes, how long its texts are. For who writes a recipe.

A look is bounded: nobody waits minutes for a question. ``whole`` says whether the bound was met before the end.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from trainwright.core.frozen import dataclass
from trainwright.spec.sections.corpus.sources import SourceSection
from trainwright.stages.data.corpus.entries import CorpusFile
from trainwright.stages.data.corpus.files import source_entries
from trainwright.stages.data.corpus.head import documents_of
from trainwright.stages.data.corpus.remote import is_url
from trainwright.stages.data.corpus.streams import BrokenStream, decompressed
from trainwright.stages.data.optional import need
from trainwright.stages.data.sources import source_of

MOST_BYTES = 64 << 20
"""Of documents that are looked at: read in one to three seconds."""
LINES = 100
"""Of JSON lines whose keys are looked at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What the documents are like that were looked at.

    Attributes:
        documents: how many have a text or an image.
        problem: place and reason of the first record that is none; None where each is one.
        labels: classes and how many documents each has, in the order of their names.
        lengths: bytes of each text as UTF-8, the shortest first; of a chat those of all its messages as JSON.
        whole: whether these are all documents of the source.
    """

    documents: int
    problem: str | None
    labels: dict[str, int]
    lengths: tuple[int, ...]
    whole: bool

    def longest(self, share: float) -> int:
        """Returns the bytes that a share of the texts does not exceed; 0 where there is no text."""
        return self.lengths[min(len(self.lengths) - 1, int(share * len(self.lengths)))] if self.lengths else 0


def survey(section: SourceSection, *, most_bytes: int = MOST_BYTES) -> Survey:
    """Looks at the documents of a source, at most at so many bytes of them; of a remote one at none.

    Raises:
        DataError: a path is missing, or the settings do not suit the files.
        MissingPackage: what reads such files is not installed.
    """
    source = source_of(section)
    if any(map(is_url, source.paths)):
        return Survey(documents=0, problem=None, labels={}, lengths=(), whole=False)
    labels, lengths, problem, left, whole = Counter[str](), list[int](), None, most_bytes, True
    for file in _files(section):
        for document in documents_of(source.read, file):
            if document.whole:
                lengths += [] if document.text is None else [len(document.text.encode())]
                labels.update([] if document.label is None else [document.label])
            else:
                problem = problem or f"{file.name}{document.position}: {document.problem}"
            left -= document.size_bytes
            if left < 0:
                break
        if left < 0:
            whole = False
            break
    found = max(len(lengths), labels.total())
    ordered = dict(sorted(labels.items()))
    return Survey(documents=found, problem=problem, labels=ordered, lengths=tuple(sorted(lengths)), whole=whole)


def columns_of(section: SourceSection) -> tuple[str, ...]:
    """Returns the columns of the first file of a source, or the keys of its first lines; none of a remote one.

    Raises:
        DataError: a path is missing.
        MissingPackage: what reads such files is not installed.
    """
    if any(map(is_url, source_of(section).paths)):
        return ()
    file = next((file for file in _files(section) if file.size_bytes), None)
    if file is None:
        return ()
    name = file.location.removesuffix(".gz").removesuffix(".zst").lower()
    read = next((reader for ending, reader in _READERS.items() if name.endswith(ending)), _keys)
    try:
        with Path(file.location).open("rb") as raw:
            return tuple(read(decompressed(raw, file.location)))
    except (BrokenStream, OSError):
        return ()


def _files(section: SourceSection) -> list[CorpusFile]:
    files = [entry for entry in source_entries(0, section) if isinstance(entry, CorpusFile)]
    return sorted(files, key=lambda file: (file.name, file.location))


def _of_table(stream: BinaryIO, delimiter: str) -> list[str]:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
    try:
        return next(csv.reader(text, delimiter=delimiter), [])
    finally:
        text.detach()


def _of_parquet(stream: BinaryIO) -> list[str]:
    arrow: Any = need("pyarrow.parquet", needed_for="reading Parquet files")
    seekable = stream if stream.seekable() else io.BytesIO(stream.read())
    try:
        return list(arrow.ParquetFile(seekable).schema_arrow.names)
    except need("pyarrow", needed_for="reading Parquet files").ArrowException as error:
        raise BrokenStream("damaged Parquet") from error


def _keys(stream: BinaryIO) -> Iterator[str]:
    """Returns the keys of the first lines' objects; a line that is none has no key."""
    seen = dict[str, None]()
    for _, line in zip(range(LINES), stream, strict=False):
        try:
            value = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            continue
        seen |= dict.fromkeys(value if isinstance(value, dict) else ())
    return iter(seen)


_READERS: dict[str, Any] = {
    ".csv": lambda stream: _of_table(stream, ","),
    ".tsv": lambda stream: _of_table(stream, "\t"),
    ".parquet": _of_parquet,
}
