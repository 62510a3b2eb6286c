"""Reads what a layout needs of a checkpoint that any layout wrote, and says what of it is damaged."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.checkpoint.index import Index, IndexedTensor, Piece, another, read_index
from trainwright.artifact.checkpoint.tensor_file import ELEMENT_BYTES, TensorFile
from trainwright.core.errors import DataError
from trainwright.core.fingerprint import file_digest
from trainwright.core.spelling import counted

SUFFIX = ".safetensors"


class CheckpointReader:
    """A checkpoint's folder, open for reading; only the parts that are asked for are read.

    Raises:
        DataError: there is no complete checkpoint, or its index is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index: Index = read_index(path)
        self._files: dict[str, TensorFile] = {}

    def region(
        self, name: str, tensor: IndexedTensor, offsets: Sequence[int], shape: Sequence[int]
    ) -> NDArray[np.uint8]:
        """Returns a rectangle of a tensor as bytes, one element after the other.

        Raises:
            DataError: a piece cannot be read, or elements of it are in none.
        """
        element = np.dtype(f"u{ELEMENT_BYTES[tensor.dtype]}")
        whole = np.empty(tuple(shape), element)
        found = 0
        for piece in tensor.pieces:
            common = _overlap(piece, offsets, shape)
            if common is None:
                continue
            here = tuple(slice(low - at, high - at) for (low, high), at in zip(common, offsets, strict=True))
            there = tuple(slice(low - at, high - at) for (low, high), at in zip(common, piece.offsets, strict=True))
            whole[here] = self._piece(name, tensor, piece).view(element).reshape(piece.shape)[there]
            found += prod(high - low for low, high in common)
        if found != whole.size:
            raise DataError(
                "the pieces of {name} do not make the part that this layout needs",
                where=self.path,
                seen=f"{found} elements",
                expected=f"{whole.size}",
                name=name,
            )
        return whole.reshape(-1).view(np.uint8) if whole.size else np.empty(0, np.uint8)

    def whole(self, name: str, tensor: IndexedTensor) -> NDArray[np.uint8]:
        """Returns all of a tensor as bytes. Raises as ``region``."""
        return self.region(name, tensor, (0,) * len(tensor.shape), tensor.shape)

    def damages(self, files: Collection[str] | None = None, *, deep: bool = True) -> Iterator[DataError]:
        """Yields what is wrong with these files, or with all of them: each damaged tensor by name and file.

        Each names another step to go on from, where there is one.
        Without ``deep`` no file is read: only those that are missing or of another size are found.
        """
        pieces: dict[str, list[tuple[str, Piece]]] = {}
        for name, tensor in self.index.tensors():
            for piece in tensor.pieces:
                pieces.setdefault(piece.file, []).append((name, piece))
        for file in self.index.files if files is None else files:
            inside = pieces.get(file, [])
            problem = self._of_file(file, inside, deep=deep)
            for each in [problem] if problem is not None else self._of_pieces(inside) if deep else ():
                yield each.with_fix(another(self.path))

    def _of_file(self, file: str, inside: Sequence[tuple[str, Piece]], *, deep: bool) -> DataError | None:
        """Returns what is wrong with a file as a whole; it names how many tensors are lost with it."""
        path, expected = self.path / file, self.index.files[file]
        lost = f" ({counted(len(inside), 'tensor')}, {inside[0][0]} first)" if inside else ""
        if not path.is_file():
            return DataError("a file of this checkpoint is missing{lost}", where=path, lost=lost)
        size_bytes = path.stat().st_size
        if size_bytes != expected.size_bytes:
            seen, right = f"{size_bytes} bytes", f"{expected.size_bytes} bytes"
            return DataError("damaged file: its size changed{lost}", where=path, seen=seen, expected=right, lost=lost)
        if deep and file.endswith(SUFFIX) and self._header(file) != expected.sha256:
            return DataError("damaged file: its header is not the one that was written{lost}", where=path, lost=lost)
        if deep and not file.endswith(SUFFIX) and file_digest(path) != expected.sha256:
            return DataError("damaged file: its sha256 does not match", where=path)
        return None

    def _of_pieces(self, inside: Sequence[tuple[str, Piece]]) -> Iterator[DataError]:
        for name, piece in inside:
            _, _, data = self._open(piece.file).tensor(name)
            seen = hashlib.sha256(data.data).hexdigest()
            if seen != piece.sha256:
                yield DataError(
                    "damaged tensor {name}: its sha256 does not match",
                    where=self.path / piece.file,
                    seen=seen,
                    expected=piece.sha256,
                    name=name,
                )

    def _header(self, file: str) -> str:
        try:
            return self._open(file).header_sha256
        except (OSError, ValueError) as error:
            return str(error)

    def _open(self, file: str) -> TensorFile:
        if file not in self._files:
            self._files[file] = TensorFile(self.path / file)
        return self._files[file]

    def _piece(self, name: str, tensor: IndexedTensor, piece: Piece) -> NDArray[Any]:
        try:
            dtype, shape, data = self._open(piece.file).tensor(name)
        except (OSError, ValueError) as error:
            raise DataError("cannot read {name}", where=self.path / piece.file, seen=str(error), name=name) from error
        if (dtype, shape) != (tensor.dtype, piece.shape):
            raise DataError(
                "{name} is another tensor than the index says",
                where=self.path / piece.file,
                seen=f"{dtype} {shape}",
                expected=f"{tensor.dtype} {piece.shape}",
                name=name,
            )
        return data


def _overlap(piece: Piece, offsets: Sequence[int], shape: Sequence[int]) -> list[tuple[int, int]] | None:
    """Returns what of a piece lies in a rectangle, as first and last-but-one of each dim; None where nothing does."""
    common = [
        (max(at, start), min(at + own, start + size))
        for at, own, start, size in zip(piece.offsets, piece.shape, offsets, shape, strict=True)
    ]
    return None if any(low >= high for low, high in common) else common
