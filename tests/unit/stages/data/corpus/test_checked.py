from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import DataError
from trainwright.stages.data.corpus import digests
from trainwright.stages.data.corpus.checked import open_checked

DATA = bytes(range(256)) * 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(digests, "_BLOCK_BYTES", 100)


@pytest.fixture
def file(tmp_path, as_file):
    (tmp_path / "a.bin").write_bytes(DATA)
    return as_file(tmp_path / "a.bin")


@given(moves=st.lists(st.tuples(st.integers(0, 1100), st.integers(-1, 400)), max_size=8))
def test_reading_and_seeking_are_those_of_the_file(tmp_path_factory, moves):
    path = tmp_path_factory.mktemp("checked") / "a.bin"
    path.write_bytes(DATA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "_BLOCK_BYTES", 100)
        entry = digests.CorpusFile(source=0, name="a", location=str(path), size_bytes=0, version="")
        with open_checked(digests.hash_file(entry)) as stream:
            expected = io.BytesIO(DATA)
            for position, count in moves:
                assert stream.seek(position) == expected.seek(position)
                assert stream.read(count) == expected.read(count)
            assert stream.seek(-5, io.SEEK_END) == expected.seek(-5, io.SEEK_END)
            assert stream.readlines() == expected.readlines()


def test_a_changed_block_is_refused_before_a_byte_of_it_is_read(file, tmp_path):
    with (tmp_path / "a.bin").open("r+b") as other:
        other.seek(250)
        other.write(b"x")
    with open_checked(file) as stream:
        assert stream.raw.read(100) == DATA[:100]
        assert stream.raw.read(100) == DATA[100:200]
        with pytest.raises(
            DataError, match=r"a.bin: this file changed .*\(seen other bytes from 200 to 300\); run the same"
        ):
            stream.raw.read(1)


def test_a_change_that_is_undone_is_none(file, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"?" * len(DATA))
    (tmp_path / "a.bin").write_bytes(DATA)
    with open_checked(file) as stream:
        assert stream.read() == DATA


@pytest.mark.parametrize(
    ("data", "seen"),
    [(DATA[:-1], "1,023 bytes, 1,024 before"), (DATA + b"x", "1,025 bytes, 1,024 before"), (b"", "0 bytes")],
)
def test_another_size_is_refused(file, tmp_path, data, seen):
    (tmp_path / "a.bin").write_bytes(data)
    with pytest.raises(DataError, match=rf"a.bin: this file changed .*\(seen {seen}"):
        open_checked(file)


@pytest.mark.parametrize("size", [50, 1023, 1025])
def test_another_size_while_reading_is_refused(file, tmp_path, size):
    with open_checked(file) as stream:
        assert stream.raw.read(10) == DATA[:10]
        os.truncate(tmp_path / "a.bin", size)
        with pytest.raises(DataError, match="this file changed while the corpus was read"):
            stream.read()


def test_a_file_that_is_gone_is_named(file, tmp_path):
    (tmp_path / "a.bin").unlink()
    with pytest.raises(DataError, match=r"a.bin: this file changed .*\(seen No such file or directory\)"):
        open_checked(file)


def test_a_file_replaced_by_another_with_equal_bytes_is_the_same(file, tmp_path):
    (tmp_path / "b.bin").write_bytes(DATA)
    (tmp_path / "b.bin").replace(tmp_path / "a.bin")
    with open_checked(file) as stream:
        assert stream.read() == DATA


def test_a_file_replaced_by_a_named_pipe_does_not_block(file, tmp_path):
    (tmp_path / "a.bin").unlink()
    os.mkfifo(tmp_path / "a.bin")
    with pytest.raises(DataError, match=r"a.bin: this file changed"):
        open_checked(file)
