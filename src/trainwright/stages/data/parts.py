"""Scratch files of a run under way: each appears complete or not at all, so that an interrupted run takes them up.

A *part* holds cleaned documents of one unit of the corpus, grouped by bucket: the leading bits of the content's sha256.
All parts together, bucket by bucket, are the corpus in the order of the hash, and no step holds more than a bucket.

::

    <sections, one per bucket> <footer: JSON> <length of the footer: 8 bytes> <magic: 8 bytes>
    section = documents, each: sha256 (32 bytes), lengths of place, label and group (u32 each) and of the text (u64),
              then place, label, group and text
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.artifact.store import write_atomically, writing

TERMINATOR = b"\xff"
"""Ends a document in a ``.docs`` file; a byte that UTF-8 never has."""
_DOCUMENT = struct.Struct("<32sIIIQ")
_FOOTER = struct.Struct("<Q8s")
_MAGIC = b"TWPART03"


@dataclass(frozen=True, slots=True)
class Document:
    """A cleaned document: sha256 of its UTF-8 text, its place in the corpus, the text, and its label if it has one.

    Documents of one ``group`` are on one side of the split.
    """

    digest: bytes
    place: str
    text: bytes
    label: str | None = None
    group: str | None = None


def publish(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file that is there complete or not at all.

    Raises:
        MachineError: the disk is full or cannot be written.
    """
    with writing(path):
        write_atomically(path, *chunks)


def publish_json(path: Path, record: Any) -> None:
    """``publish`` a JSON file."""
    publish(path, [json.dumps(record, ensure_ascii=False).encode()])


def read_json(path: Path) -> Any | None:
    """Returns a scratch JSON file, or None where there is none or it was cut short by a power failure."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def bucket_of(digest: bytes, bucket_bits: int) -> int:
    """Returns the leading bits of a digest; buckets in order are digests in order."""
    return int.from_bytes(digest[:4], "big") >> (32 - bucket_bits)


def publish_part(path: Path, buckets: dict[int, list[Document]], footer: dict[str, Any]) -> None:
    """Write a part. ``footer`` is kept beside the table of sections.

    Raises:
        MachineError: the disk is full or cannot be written.
    """
    publish(path, _part_chunks(buckets, footer))


def _part_chunks(buckets: dict[int, list[Document]], footer: dict[str, Any]) -> Iterator[bytes]:
    offset, sections = 0, {}
    for bucket in sorted(buckets):
        start = offset
        for document in buckets[bucket]:
            words = [(text or "").encode() for text in (document.place, document.label, document.group)]
            pieces = (*words, document.text)
            yield _DOCUMENT.pack(document.digest, *map(len, pieces))
            yield from pieces
            offset += _DOCUMENT.size + sum(map(len, pieces))
        sections[bucket] = (start, offset - start)
    tail = json.dumps(footer | {"sections": sections}, ensure_ascii=False).encode()
    yield tail
    yield _FOOTER.pack(len(tail), _MAGIC)


def read_footer(path: Path) -> dict[str, Any] | None:
    """Returns a part's footer, with ``sections`` (bucket -> offset, length); None where it is absent or incomplete."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - _FOOTER.size, 0))
            length, magic = _FOOTER.unpack(stream.read())
            if magic != _MAGIC:
                return None
            stream.seek(size - _FOOTER.size - length)
            footer: dict[str, Any] = json.loads(stream.read(length))
    except (FileNotFoundError, struct.error, ValueError):
        return None
    footer["sections"] = {int(bucket): tuple(span) for bucket, span in footer["sections"].items()}
    return footer


def read_section(path: Path, offset: int, length: int, *, texts: bool = True) -> Iterator[Document]:
    """Yields the documents of one bucket of a part, in the corpus's order; without ``texts`` those are empty."""
    with path.open("rb") as stream:
        stream.seek(offset)
        while stream.tell() < offset + length:
            digest, *sizes, size = _DOCUMENT.unpack(stream.read(_DOCUMENT.size))
            place, label, group = (stream.read(each).decode() for each in sizes)
            text = stream.read(size) if texts else b""
            if not texts:
                stream.seek(size, os.SEEK_CUR)
            yield Document(digest, place, text, label or None, group or None)


def read_documents(path: Path) -> list[bytes]:
    """Returns the texts of a ``.docs`` file."""
    return path.read_bytes().split(TERMINATOR)[:-1]
