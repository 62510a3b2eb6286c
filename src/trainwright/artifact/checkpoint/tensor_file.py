"""Safetensors files, written with a sha256 of each tensor and read piece by piece; torch is not needed.

The format: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.model_folder import LENGTH_BYTES, MOST_HEADER_BYTES

ELEMENT_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}
"""Bytes of an element, by the format's name of its dtype."""
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorBytes:
    """A tensor to write: the format's name of its dtype, its shape, and its elements one after the other."""

    dtype: str
    shape: tuple[int, ...]
    data: Iterable[Bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    """What came of writing a file: its size, the sha256 of its header (length included), and of each tensor."""

    size_bytes: int
    header_sha256: str
    tensors: Mapping[str, str]


def write_tensors(path: Path, tensors: Mapping[str, TensorBytes]) -> WrittenFile:
    """Writes a file and waits until the disk has it; a kill leaves a half one.

    Tensors stand in the order of their elements' sizes, so that each begins at a multiple of its own.
    """
    order = sorted(tensors, key=lambda name: (-ELEMENT_BYTES[tensors[name].dtype], name))
    entries: dict[str, Any] = {}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + prod(tensor.shape) * ELEMENT_BYTES[tensor.dtype]
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(LENGTH_BYTES, "little") + text
    digests = {}
    with path.open("wb") as stream:
        stream.write(head)
        for name in order:
            seen = hashlib.sha256()
            for part in tensors[name].data:
                seen.update(part.data)
                stream.write(part.data)
            digests[name] = seen.hexdigest()
        stream.flush()
        os.fsync(stream.fileno())
    return WrittenFile(size_bytes=len(head) + end, header_sha256=hashlib.sha256(head).hexdigest(), tensors=digests)


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    begin: int


class TensorFile:
    """An open file; its tensors are mapped, and read where they are used.

    Raises:
        ValueError: this is no such file.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            length = stream.read(LENGTH_BYTES)
            header_bytes = int.from_bytes(length, "little")
            if header_bytes > min(path.stat().st_size - LENGTH_BYTES, MOST_HEADER_BYTES):
                raise ValueError(f"a header of {header_bytes} bytes")
            header = stream.read(header_bytes)
        self.path = path
        self.header_sha256 = hashlib.sha256(length + header).hexdigest()
        self._header = header
        self._start = LENGTH_BYTES + header_bytes
        self._read: dict[str, _Entry] | None = None

    def names(self) -> list[str]:
        """Returns the names of its tensors. Raises a ValueError where the header is damaged."""
        return list(self._entries())

    def tensor(self, name: str) -> tuple[str, tuple[int, ...], Bytes]:
        """Returns a tensor's dtype, shape and bytes. Raises a ValueError where there is none, or only a half."""
        entry = self._entries().get(name)
        if entry is None:
            raise ValueError(f"no tensor {name!r}")
        size_bytes = prod(entry.shape) * ELEMENT_BYTES[entry.dtype]
        if not size_bytes:
            return entry.dtype, entry.shape, np.empty(0, np.uint8)
        # Of a Path it would resolve every link at every tensor.
        mapped = np.memmap(os.fspath(self.path), np.uint8, "r", offset=self._start + entry.begin, shape=(size_bytes,))
        return entry.dtype, entry.shape, mapped

    def _entries(self) -> dict[str, _Entry]:
        if self._read is None:
            try:
                record = json.loads(self._header)
                record.pop("__metadata__", None)
                self._read = {
                    name: _Entry(str(one["dtype"]), tuple(map(int, one["shape"])), int(one["data_offsets"][0]))
                    for name, one in record.items()
                }
                unknown = {each.dtype for each in self._read.values()} - ELEMENT_BYTES.keys()
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise ValueError(f"a damaged header: {error}") from error
            if unknown:
                raise ValueError(f"the dtype {min(unknown)} is unknown")
        return self._read
