"""The first documents of a corpus: what a small read tells before anything else is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from trainwright.core.errors import DataError, TrainwrightError
from trainwright.core.plug_in import blaming
from trainwright.core.registry import is_reference
from trainwright.spec.sections.corpus.sources import SourceSection
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.chats.cleaning import cleaner_of
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange, RawDocument
from trainwright.stages.data.corpus.files import Entry, list_files, not_a_document, source_entries
from trainwright.stages.data.corpus.remote import is_url
from trainwright.stages.data.corpus.streams import BrokenStream, decompressed
from trainwright.stages.data.plug_ins import plug_ins
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.sources.base import Source
from trainwright.stages.data.sources.labels import names_in

FILES, LISTED = 64, 4096
"""Files of a source whose heads are looked at, spread over so many names of it, before it is said that none has a
document."""
PATIENCE_BYTES = 64 << 20
"""Text of these files that is read besides, before that is said."""


def labels_at_head(section: DataSection) -> tuple[str, ...]:
    """Returns labels that the dataset will have, of the first documents of the corpus's first file.

    Of equal documents the first one is kept, so that those of later files tell nothing. There are none where the file
    is remote or its head tells nothing, or where only code of a plug-in knows which documents are kept.

    Raises:
        DataError: there is no such file.
        RecipeError: a filter cannot be found.
    """
    if section.images is not None:
        return _labels_of_images(section)
    if section.label_kind == "number":
        return ()
    source = source_of(section.sources[0])
    if plug_ins(section) or any(map(is_url, source.paths)):
        return ()
    first = _files(list_files(section.model_copy(update={"sources": section.sources[:1]})), 1)
    clean, kept = cleaner_of(section), dict[str, str]()
    for document in (document for file in first for document in documents_of(source.head, file)):
        if document.text is not None and document.label is not None:
            text, reason_to_drop = clean(document.text)
            if reason_to_drop is None:
                kept.setdefault(text, document.label)
    labels = sorted(set(kept.values()))
    return names_in(labels) if section.label_kind in ("names", "words") else tuple(labels)


def _labels_of_images(section: DataSection) -> tuple[str, ...]:
    """Returns the classes that sources of images know by the names of files, or tell at the head of the first one."""
    labels = set[str]()
    for number, settings in enumerate(section.sources):
        source = source_of(settings)
        if any(map(is_url, source.paths)) or is_reference(settings.kind):
            continue
        files = [file for file in source_entries(number, settings) if isinstance(file, CorpusFile)]
        by_name = set(filter(None, map(source.label, files)))
        labels |= by_name
        if not by_name:
            heads = (document for file in files[:1] for document in documents_of(source.head, file))
            labels.update(document.label for document in heads if document.label is not None)
    return tuple(sorted(labels))


def unusable_source(number: int, section: SourceSection) -> TrainwrightError | None:
    """Returns why no document is found in a source; None where one is, or a file's head does not tell.

    Heads are looked at first, then more of the same files: a few broken records, or many, are dropped and counted by
    the stage, and settings that suit no record are refused here.

    Args:
        number: of the source in ``data.sources``, for the place.
        section: its keys, whose paths are there.
    """
    source, place = source_of(section), f"data.sources.{number}"
    if any(map(is_url, source.paths)):
        return None
    try:
        with blaming(section.kind, where=place, error_class=DataError):
            files = _spread(_files(source_entries(number, section), LISTED))
            first = _first_problem(source, files)
            if first is None or _has_text(source, files):
                return None
    except TrainwrightError as error:
        return error if error.where == place else error.at(place, seen=f"{error.where}: {error.seen}")
    return DataError(
        "the first records of this source are no documents",
        where=place,
        seen=first,
        fix=f"check the keys and the files of {place}",
    )


def broken_record(number: int, section: SourceSection) -> DataError | None:
    """Returns the first record of a source's heads that is no document, as the stage would refuse it; None of none.

    Args:
        number: of the source in ``data.sources``.
        section: its keys, whose paths are there.
    """
    source, place = source_of(section), f"data.sources.{number}"
    if any(map(is_url, source.paths)):
        return None
    with blaming(section.kind, where=place, error_class=DataError):
        for file in _spread(_files(source_entries(number, section), LISTED)):
            for document in _at_head(source, file):
                if not document.whole:
                    return not_a_document(file, document)
    return None


def _spread(files: Iterable[CorpusFile]) -> list[CorpusFile]:
    """Returns some of the files that have bytes, the same ones in whatever order they were listed."""
    ordered = sorted((file for file in files if file.size_bytes), key=lambda file: (file.name, file.location))
    return ordered[:: max(1, -(-len(ordered) // FILES))]


def _first_problem(source: Source[Any], files: Iterable[CorpusFile]) -> str | None:
    """Returns the first record that is no document; None where a head has a document or tells nothing."""
    first = None
    for file in files:
        documents = list(_at_head(source, file))
        if not documents or any(document.whole for document in documents):
            return None
        first = first or f"{file.name}{documents[0].position}: {documents[0].problem}"
    return first


def _has_text(source: Source[Any], files: Iterable[CorpusFile]) -> bool:
    """Returns whether there is a document in the first ``PATIENCE_BYTES``."""
    patience_bytes = PATIENCE_BYTES
    for file in files:
        for document in documents_of(source.read, file):
            if document.whole:
                return True
            patience_bytes -= document.size_bytes
            if patience_bytes < 0:
                return False
    return False


def _at_head(source: Source[Any], file: CorpusFile) -> Iterator[RawDocument]:
    """Yields the documents of a head, and the records without one that the file's index counts."""
    head = list(documents_of(source.head, file))
    yield from head
    if all(document.whole for document in head):
        yield from documents_of(source.flawed, file)


def _files(entries: Iterable[Entry], most: int) -> Iterator[CorpusFile]:
    return islice((entry for entry in entries if isinstance(entry, CorpusFile)), most)


def documents_of(
    read: Callable[[BinaryIO, FileRange], Iterator[RawDocument]], file: CorpusFile
) -> Iterator[RawDocument]:
    """Yields the documents; of a damaged file its problem, and none of one that cannot be opened, which is skipped."""
    try:
        with Path(file.location).open("rb") as raw:
            yield from read(decompressed(raw, file.location), FileRange(file=file))
    except BrokenStream as broken:
        yield RawDocument("", 0, problem=broken.reason)
    except OSError:
        return
