"""Bytes of a corpus file: local or remote, plain, gzip or Zstandard by its name."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, BinaryIO, cast

from trainwright.stages.data.corpus.checked import changed_file, open_checked
from trainwright.stages.data.corpus.entries import CorpusFile
from trainwright.stages.data.corpus.files import unreadable
from trainwright.stages.data.corpus.remote import open_filesystem, remote_version
from trainwright.stages.data.optional import need

_CHUNK_BYTES = 1 << 16


class BrokenStream(Exception):
    """A file that ends too early or does not decompress; ``reason`` is counted in the report."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@contextmanager
def opened(file: CorpusFile) -> Iterator[BinaryIO]:
    """The file's decompressed bytes.

    Raises:
        DataError: the operating system or the remote end refuses to give them, or the file is not what it was when
            the corpus was hashed.
        BrokenStream: while reading, where compressed data are cut short or damaged.
    """
    try:
        with _raw(file) as raw:
            yield decompressed(raw, file.location)
        if file.remote and remote_version(file.location) != file.version:
            raise changed_file(file.location, "another checksum")
    except OSError as error:
        raise unreadable(file.location, error) from error


def decompressed(raw: BinaryIO, name: str) -> BinaryIO:
    """Returns the bytes of a stream, decompressed as the file's name says."""
    kind = {".gz": "gzip", ".zst": "zstd"}.get(PurePath(name).suffix)
    return raw if kind is None else io.BufferedReader(_Decompressed(raw, kind), 1 << 20)


def _raw(file: CorpusFile) -> BinaryIO:
    if not file.remote:
        return open_checked(file)
    filesystem, path = open_filesystem(file.location)
    return cast(BinaryIO, filesystem.open(path, "rb"))


LONGEST_WINDOW = 1 << 31
"""Bytes that a Zstandard frame may look back; ``zstd --long`` writes up to as many."""


class _Decompressed(io.RawIOBase):
    """Members of a gzip file or frames of a Zstandard file, one after the other, in bounded memory.

    The end of the file inside a member is an error here; zstandard's own reader takes it for the end of the data.
    """

    def __init__(self, stream: BinaryIO, kind: str) -> None:
        self._stream = stream
        self._kind = kind
        self._ready = memoryview(b"")
        self._tail = b""
        if kind == "zstd":
            zstandard = need("zstandard", needed_for="reading .zst files")
            decompressor = zstandard.ZstdDecompressor(max_window_size=LONGEST_WINDOW)
            self._new: Any = decompressor.decompressobj
            self._error: type[Exception] = zstandard.ZstdError
        else:
            self._new = lambda: zlib.decompressobj(wbits=31)
            self._error = zlib.error
        self._member = self._new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._feed():
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _feed(self) -> bool:
        chunk = self._tail or self._stream.read(_CHUNK_BYTES)
        if not chunk:
            if self._member.eof:
                return False
            raise BrokenStream(f"truncated {self._kind}")
        if self._member.eof:
            chunk = chunk.lstrip(b"\0")  # gzip allows padding after a member
            if not chunk:
                self._tail = b""
                return True
            self._member = self._new()
        try:
            self._ready = memoryview(self._member.decompress(chunk))
        except self._error as error:
            raise BrokenStream(f"damaged {self._kind}") from error
        self._tail = self._member.unused_data if self._member.eof else b""
        return True
