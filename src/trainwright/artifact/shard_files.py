"""The files of one shard: written atomically, mapped and checked (``docs/formats/token-shards.md``)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.store import write_atomically, writing
from trainwright.core.errors import DataError
from trainwright.core.spelling import counted

REMAKE = "delete this artefact and run the same command to make it again"

_MAGIC = b"TWINDEX1"
_HEADER = struct.Struct("<8sQ")

Tokens: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32] | NDArray[np.uint8]
"""Ids; of images the values of their pixels."""
PIXEL = np.dtype("u1")
"""The type of a pixel's value."""


def token_dtype(vocabulary: int) -> np.dtype[Any]:
    """Returns the little-endian type of an id: 16 bits while they suffice, then 32."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


def write_shard(
    stem: Path,
    tokens: Sequence[Tokens],
    ends: NDArray[np.uint64],
    text_bytes: NDArray[np.uint64],
    labels: NDArray[np.uint16] | NDArray[np.float64] | None = None,
    *,
    answers: Sequence[NDArray[np.bool_]] | None = None,
) -> None:
    """Write ``<stem>.tokens``, what stands beside tokens and documents, and ``<stem>.index`` atomically, that last.

    Args:
        stem: path without a suffix.
        tokens: pieces of the id stream, in order, already of the dataset's type.
        ends: for each document the position just after its end-of-text id.
        text_bytes: for each document the UTF-8 bytes of its text.
        labels: for each document the number of its label (``<stem>.labels``), or the number that it has itself
            (``<stem>.numbers``); None where documents have none.
        answers: pieces of a flag for each id, whether it belongs to an answer; None where documents are no chats.

    Raises:
        MachineError: the disk is full or cannot be written.
    """
    path = stem.with_name(stem.name + ".tokens")
    with writing(path):
        write_atomically(path, *(np.ascontiguousarray(piece).data for piece in tokens))
        if labels is not None:
            suffix, stored = (".numbers", "<f8") if labels.dtype == np.float64 else (".labels", "<u2")
            write_atomically(stem.with_name(stem.name + suffix), labels.astype(stored).tobytes())
        if answers is not None:
            flags = np.concatenate([np.empty(0, np.bool_), *answers])
            write_atomically(stem.with_name(stem.name + ".answers"), np.packbits(flags, bitorder="little").tobytes())
        index = _HEADER.pack(_MAGIC, len(ends)) + ends.astype("<u8").tobytes() + text_bytes.astype("<u8").tobytes()
        write_atomically(stem.with_name(stem.name + ".index"), index)


@dataclass(frozen=True, kw_only=True, eq=False)
class Shard:
    """The files of one shard. ``ends``, ``text_bytes`` and ``labels`` have the shape ``[documents]``.

    So have ``numbers``, where documents have numbers themselves.

    ``answers`` has a bit for each token, eight in a byte, the lowest first.
    """

    path: Path
    tokens: Tokens
    ends: NDArray[np.uint64]
    text_bytes: NDArray[np.uint64]
    labels: NDArray[np.uint16] | None = None
    numbers: NDArray[np.float64] | None = None
    answers: NDArray[np.uint8] | None = None


def open_shard(
    stem: Path, dtype: np.dtype[Any], *, labelled: bool = False, numbered: bool = False, answered: bool = False
) -> Shard:
    """Map a shard and check that its files agree.

    Raises:
        DataError: a file is missing, cut short, or says something impossible; names the file.
    """
    path, index = stem.with_name(stem.name + ".tokens"), stem.with_name(stem.name + ".index")
    ends, text_bytes = _open_index(index)
    if not path.is_file():
        raise DataError("a token shard is missing", where=path, fix=REMAKE)
    size = path.stat().st_size
    if size % dtype.itemsize:
        raise DataError(
            "damaged token shard: its size is no whole number of ids",
            where=path,
            seen=counted(size, "byte"),
            expected=f"a multiple of {dtype.itemsize}",
            fix=REMAKE,
        )
    expected = int(ends[-1]) if len(ends) else 0
    if size // dtype.itemsize != expected:
        raise DataError(
            "damaged token shard: it does not hold what its index says",
            where=path,
            seen=counted(size // dtype.itemsize, "token"),
            expected=counted(expected, "token"),
            fix=REMAKE,
        )
    tokens = np.memmap(path, dtype=dtype, mode="r") if size else np.empty(0, dtype)
    labels = _read_labels(stem.with_name(stem.name + ".labels"), len(ends)) if labelled else None
    numbers = _read_numbers(stem.with_name(stem.name + ".numbers"), len(ends)) if numbered else None
    answers = _read_answers(stem.with_name(stem.name + ".answers"), expected) if answered else None
    return Shard(
        path=path, tokens=tokens, ends=ends, text_bytes=text_bytes, labels=labels, numbers=numbers, answers=answers
    )


def _read_labels(path: Path, documents: int) -> NDArray[np.uint16]:
    _check_size(path, 2 * documents, "labels")
    return np.fromfile(path, "<u2")


def _read_numbers(path: Path, documents: int) -> NDArray[np.float64]:
    _check_size(path, 8 * documents, "numbers")
    return np.fromfile(path, "<f8")


def _read_answers(path: Path, tokens: int) -> NDArray[np.uint8]:
    _check_size(path, -(-tokens // 8), "answers")
    return np.memmap(path, np.uint8, mode="r") if tokens else np.empty(0, np.uint8)


def _check_size(path: Path, size_bytes: int, what: str) -> None:
    seen = path.stat().st_size if path.is_file() else 0
    if seen != size_bytes:
        expected = counted(size_bytes, "byte")
        raise DataError(
            "the {what} of a token shard are damaged",
            where=path,
            seen=counted(seen, "byte"),
            expected=expected,
            fix=REMAKE,
            what=what,
        )


def _open_index(path: Path) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    if not path.is_file():
        raise DataError("the index of a token shard is missing", where=path, fix=REMAKE)
    with path.open("rb") as stream:
        head = stream.read(_HEADER.size)
    if len(head) < _HEADER.size or head[:8] != _MAGIC:
        raise DataError(
            "not an index of a token shard", where=path, seen=repr(head[:8]), expected=repr(_MAGIC), fix=REMAKE
        )
    documents = _HEADER.unpack(head)[1]
    size, expected = path.stat().st_size, _HEADER.size + 16 * documents
    if size != expected:
        raise DataError(
            "damaged index: {documents} documents need another size",
            where=path,
            seen=counted(size, "byte"),
            expected=counted(expected, "byte"),
            fix=REMAKE,
            documents=documents,
        )
    if not documents:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    table = np.memmap(path, dtype="<u8", mode="r", offset=_HEADER.size, shape=(2, documents))
    ends = table[0]
    if ends[0] == 0 or bool(np.any(ends[1:] <= ends[:-1])):
        raise DataError("damaged index: the documents' ends do not ascend", where=path, fix=REMAKE)
    return ends, table[1]
