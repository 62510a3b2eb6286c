from __future__ import annotations

import errno
import gzip
import io
import os
import random

import pytest
import zstandard

from trainwright.core.errors import DataError, MissingPackage
from trainwright.stages.data.corpus.entries import CorpusFile
from trainwright.stages.data.corpus.remote import remote_version
from trainwright.stages.data.corpus.streams import BrokenStream, decompressed, opened

DATA = random.Random(1).randbytes(300_000) + b"text " * 200_000


def zst(data):
    return zstandard.ZstdCompressor().compress(data)


COMPRESSED = {"gz": gzip.compress, "zst": zst}


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_what_other_tools_compressed_comes_back_members_and_frames_joined(tmp_path, suffix, as_file):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(COMPRESSED[suffix](DATA) + COMPRESSED[suffix](b"") + COMPRESSED[suffix](b"second"))
    with opened(as_file(path)) as stream:
        assert stream.read() == DATA + b"second"
    with opened(as_file(path)) as stream:
        assert b"".join(stream) == DATA + b"second"


def test_gzip_padding_is_allowed(tmp_path, as_file):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one") + b"\0" * 100_000 + gzip.compress(b"two") + b"\0" * 512)
    with opened(as_file(path)) as stream:
        assert stream.read() == b"onetwo"


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_every_cut_is_noticed(tmp_path, suffix, as_file):
    whole = COMPRESSED[suffix](b"some text that is compressed " * 40)
    path = tmp_path / f"a.{suffix}"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(BrokenStream, match="truncated"), opened(as_file(path)) as stream:
            stream.read()


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_damage_is_told_from_truncation(tmp_path, suffix, as_file):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"this was never compressed")
    with pytest.raises(BrokenStream, match="damaged"), opened(as_file(path)) as stream:
        stream.read()


def test_gzip_checks_its_checksum(tmp_path, as_file):
    data = bytearray(gzip.compress(b"words and words"))
    data[-6] ^= 1
    path = tmp_path / "a.gz"
    path.write_bytes(data)
    with pytest.raises(BrokenStream, match="damaged gzip"), opened(as_file(path)) as stream:
        stream.read()


def test_what_the_operating_system_refuses_is_one_line(tmp_path, as_file, monkeypatch):
    (tmp_path / "a.txt").write_text("text")
    file = as_file(tmp_path / "a.txt")

    def refuse(handle, buffers, offset):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", refuse)
    line = r"a.txt: cannot read this file \(seen Input/output error\)"
    with pytest.raises(DataError, match=line), opened(file) as stream:
        stream.read()


def test_a_remote_file_goes_through_fsspec(tmp_path):
    import fsspec

    with fsspec.open("memory://streams/a.gz", "wb") as stream:
        stream.write(gzip.compress(b"far away"))
    version = remote_version("memory://streams/a.gz")
    file = CorpusFile(source=0, name="a.gz", location="memory://streams/a.gz", size_bytes=1, version=version)
    with opened(file) as stream:
        assert isinstance(stream, io.BufferedReader)
        assert stream.read() == b"far away"


def test_a_missing_decompressor_says_how_to_install_it(tmp_path, monkeypatch, as_file):
    path = tmp_path / "a.zst"
    path.write_bytes(zst(b"x"))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with (
        pytest.raises(MissingPackage, match=r"zstandard.*pip install 'trainwright\[data\]'"),
        opened(as_file(path)) as stream,
    ):
        stream.read()


def test_a_frame_with_a_long_window_is_read(tmp_path):
    options = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    path = tmp_path / "long.zst"
    packer = zstandard.ZstdCompressor(compression_params=options).compressobj()
    path.write_bytes(packer.compress(b"a line\n") + packer.flush())
    with pytest.raises(zstandard.ZstdError, match="memory"):
        zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    with path.open("rb") as raw:
        assert decompressed(raw, str(path)).read() == b"a line\n"
