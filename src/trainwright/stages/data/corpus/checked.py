"""Reading a local file whose digests are known: no byte that differs from what was hashed is ever given out."""

from __future__ import annotations

import hashlib
import io
import os
from typing import Any

from trainwright.core.errors import DataError
from trainwright.stages.data.corpus.digests import DIGEST_BYTES, block_bytes, open_regular
from trainwright.stages.data.corpus.entries import CorpusFile

_BUFFER_BYTES = 1 << 16


def changed_file(location: str, seen: str) -> DataError:
    """Returns the error for a file that is not what it was when the corpus was hashed."""
    return DataError(
        "this file changed while the corpus was read",
        where=location,
        seen=seen,
        fix="run the same command again, and leave the corpus alone until it ends",
    )


def open_checked(file: CorpusFile) -> io.BufferedReader:
    """Opens a local file that was hashed in blocks.

    Raises:
        DataError: the file is gone, or was changed, cut or extended; here or while reading.
    """
    try:
        handle = open_regular(file.location)
    except OSError as error:
        raise changed_file(file.location, error.strerror or repr(error)) from error
    reader = CheckedReader(file, handle)
    try:
        reader.check_size()
    except DataError:
        reader.close()
        raise
    return io.BufferedReader(reader, _BUFFER_BYTES)


class CheckedReader(io.RawIOBase):
    """Reads an open file; compares each block with its digest before any byte of it is given out.

    Args:
        file: the file with the digests of its blocks.
        handle: the open file; closed with the reader.
    """

    def __init__(self, file: CorpusFile, handle: int) -> None:
        super().__init__()
        self._file = file
        self._handle = handle
        self._block_bytes = block_bytes(file.size_bytes)
        self._position = 0
        self._loaded: tuple[int, memoryview] = (-1, memoryview(b""))

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a position; returns it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size_bytes}[whence]
        if base + offset < 0:
            raise ValueError(f"position {base + offset} is before the start of {self._file.location}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Returns the position."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer from one block; returns the number of bytes."""
        if self._position >= self._file.size_bytes:
            self.check_size()
            return 0
        number, offset = divmod(self._position, self._block_bytes)
        if self._loaded[0] != number:
            self._loaded = (number, self._block(number))
        block = self._loaded[1]
        count = min(len(buffer), len(block) - offset)
        buffer[:count] = block[offset : offset + count]
        self._position += count
        return count

    def close(self) -> None:
        """Closes the file."""
        if not self.closed:
            os.close(self._handle)
        super().close()

    def check_size(self) -> None:
        """Compares the size with the one when the file was hashed.

        Raises:
            DataError: it is another.
        """
        size = os.fstat(self._handle).st_size
        if size != self._file.size_bytes:
            raise changed_file(self._file.location, f"{size:,} bytes, {self._file.size_bytes:,} before")

    def _block(self, number: int) -> memoryview:
        start = number * self._block_bytes
        wanted = min(self._block_bytes, self._file.size_bytes - start)
        data = bytearray(wanted)
        filled = 0
        while filled < wanted:
            count = os.preadv(self._handle, [memoryview(data)[filled:]], start + filled)
            if not count:
                break
            filled += count
        expected = self._file.blocks[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        if filled < wanted or hashlib.sha256(data).digest() != expected:
            self.check_size()
            raise changed_file(self._file.location, f"other bytes from {start:,} to {start + wanted:,}")
        return memoryview(data)
