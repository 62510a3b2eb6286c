"""How much text a corpus holds, roughly, from the sizes of its files: no file is opened."""

from __future__ import annotations

from trainwright.core.errors import DataError
from trainwright.spec.sections.corpus.sources import SourceSection
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.entries import CorpusFile
from trainwright.stages.data.corpus.files import list_files, source_entries
from trainwright.stages.data.corpus.remote import is_url
from trainwright.stages.data.sources import source_of

EXPANSION = 4
"""Compressed text is taken to be this much larger; nobody knows before it is read."""


def text_bytes(file: CorpusFile) -> int:
    """Returns the bytes of text that a file is taken to hold."""
    return file.size_bytes * (EXPANSION if file.location.endswith((".gz", ".zst", ".parquet")) else 1)


def corpus_bytes(section: DataSection) -> int:
    """Returns the bytes of text that the corpus is taken to hold; of images those of the pixels as they are stored.

    Raises:
        DataError: a path is missing or no file, or a pattern matches nothing.
    """
    if section.images is not None:
        return section.images.values * sum(_images(number, source) for number, source in enumerate(section.sources))
    return sum(text_bytes(file) for file in list_files(section) if isinstance(file, CorpusFile))


def _images(number: int, section: SourceSection) -> int:
    """Returns how many images a source has: as many as files, but where the source is known."""
    known = source_of(section).documents
    return (
        known if known is not None else sum(isinstance(entry, CorpusFile) for entry in source_entries(number, section))
    )


def corpus_bytes_here(section: DataSection) -> int | None:
    """Returns the same of a corpus on this machine; None where it is not here, and the network is not asked."""
    if any(is_url(path) for source in section.sources for path in source_of(source).paths):
        return None
    try:
        return corpus_bytes(section)
    except DataError:
        return None
