"""The labels at the head of a corpus: what a small read tells before anything else is read."""

from __future__ import annotations

import io
from pathlib import Path

from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.cleaning.cleaner import Cleaner
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange
from trainwright.stages.data.corpus.files import list_files
from trainwright.stages.data.corpus.remote import is_url
from trainwright.stages.data.plug_ins import plug_ins
from trainwright.stages.data.sources import source_of

HEAD_BYTES = 1 << 20


def labels_at_head(section: DataSection) -> tuple[str, ...]:
    """Returns labels that the dataset will have, of the first documents of the corpus's first file.

    Of equal documents the first one is kept, so that those of later files tell nothing. There are none where the file
    is remote, compressed or not read by lines, or where only code of a plug-in knows which documents are kept.

    Raises:
        DataError: there is no such file.
        RecipeError: a filter cannot be found.
    """
    source = source_of(section.sources[0])
    if plug_ins(section) or not source.by_lines or any(map(is_url, source.paths)):
        return ()
    entries = list_files(section.model_copy(update={"sources": section.sources[:1]}))
    file = next((entry for entry in entries if isinstance(entry, CorpusFile)), None)
    if file is None or file.location.endswith((".gz", ".zst")):
        return ()
    clean, kept = Cleaner(section.clean), dict[str, str]()
    for document in source.read(io.BytesIO(_whole_lines(Path(file.location))), FileRange(file=file)):
        if document.text is not None and document.label is not None:
            text, reason_to_drop = clean(document.text)
            if reason_to_drop is None:
                kept.setdefault(text, document.label)
    return tuple(sorted(set(kept.values())))


def _whole_lines(path: Path) -> bytes:
    """The first lines of a file; none where it cannot be read, which is reported when it is."""
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            return head if not stream.read(1) else head[: head.rfind(b"\n") + 1]
    except OSError:
        return b""
