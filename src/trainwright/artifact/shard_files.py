"""The files of one shard, mapped and checked (``docs/formats/token-shards.md``)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainwright.core.errors import DataError
from trainwright.core.spelling import counted

REMAKE = "delete this artefact and run the same command to make it again"

MAGIC = b"TWINDEX1"
HEADER = struct.Struct("<8sQ")

Tokens: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32] | NDArray[np.uint8]
"""Ids; of images the values of their pixels."""
PIXEL = np.dtype("u1")
"""The type of a pixel's value."""
NO_TAG = (1 << 16) - 1
"""Stands beside tokens at which no word with a label begins."""


def token_dtype(vocabulary: int) -> np.dtype[Any]:
    """Returns the little-endian type of an id: 16 bits while they suffice, then 32."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Shard:
    """The files of one shard. ``ends``, ``text_bytes`` and ``labels`` have the shape ``[documents]``.

    So have ``numbers``, where documents have numbers themselves.

    ``answers`` has a bit for each token, eight in a byte, the lowest first; ``tags`` has a number for each.
    """

    path: Path
    tokens: Tokens
    ends: NDArray[np.uint64]
    text_bytes: NDArray[np.uint64]
    labels: NDArray[np.uint16] | None = None
    numbers: NDArray[np.float64] | None = None
    answers: NDArray[np.uint8] | None = None
    tags: NDArray[np.uint16] | None = None


def open_shard(
    stem: Path,
    dtype: np.dtype[Any],
    *,
    labelled: bool = False,
    numbered: bool = False,
    answered: bool = False,
    tagged: bool = False,
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
    return Shard(
        path=path,
        tokens=np.memmap(path, dtype=dtype, mode="r") if size else np.empty(0, dtype),
        ends=ends,
        text_bytes=text_bytes,
        labels=_read_each(stem.with_name(stem.name + ".labels"), len(ends), "<u2", "labels") if labelled else None,
        numbers=_read_each(stem.with_name(stem.name + ".numbers"), len(ends), "<f8", "numbers") if numbered else None,
        answers=_read_answers(stem.with_name(stem.name + ".answers"), expected) if answered else None,
        tags=_read_tags(stem.with_name(stem.name + ".tags"), expected) if tagged else None,
    )


def _read_each(path: Path, documents: int, dtype: str, what: str) -> NDArray[Any]:
    _check_size(path, np.dtype(dtype).itemsize * documents, what)
    return np.fromfile(path, dtype)


def _read_answers(path: Path, tokens: int) -> NDArray[np.uint8]:
    _check_size(path, -(-tokens // 8), "answers")
    return np.memmap(path, np.uint8, mode="r") if tokens else np.empty(0, np.uint8)


def _read_tags(path: Path, tokens: int) -> NDArray[np.uint16]:
    _check_size(path, 2 * tokens, "labels of words")
    return np.memmap(path, "<u2", mode="r") if tokens else np.empty(0, np.uint16)


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
        head = stream.read(HEADER.size)
    if len(head) < HEADER.size or head[:8] != MAGIC:
        raise DataError(
            "not an index of a token shard", where=path, seen=repr(head[:8]), expected=repr(MAGIC), fix=REMAKE
        )
    documents = HEADER.unpack(head)[1]
    size, expected = path.stat().st_size, HEADER.size + 16 * documents
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
    table = np.memmap(path, dtype="<u8", mode="r", offset=HEADER.size, shape=(2, documents))
    ends = table[0]
    if ends[0] == 0 or bool(np.any(ends[1:] <= ends[:-1])):
        raise DataError("damaged index: the documents' ends do not ascend", where=path, fix=REMAKE)
    return ends, table[1]
