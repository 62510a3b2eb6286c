"""Our files are safetensors files: the format's own library reads them, and the reader reads the library's."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from trainwright.artifact.checkpoint.tensor_file import TensorBytes, TensorFile, write_tensors

ARRAYS = {
    "long": np.arange(3, dtype=np.int64),
    "float": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
    "byte": np.arange(5, dtype=np.uint8),
    "none": np.empty((0, 4), np.float32),
    "one": np.array(2.5, np.float32),
}
NAMES = {"int64": "I64", "float32": "F32", "uint8": "U8"}


def stored(array: np.ndarray) -> TensorBytes:
    flat = array.reshape(-1).view(np.uint8)
    return TensorBytes(dtype=NAMES[array.dtype.name], shape=array.shape, data=[flat[:7], flat[7:]])


def test_the_library_reads_what_is_written(tmp_path) -> None:
    done = write_tensors(tmp_path / "f", {name: stored(array) for name, array in ARRAYS.items()})
    found = load_file(tmp_path / "f")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name], array) and found[name].dtype == array.dtype
        assert done.tensors[name] == hashlib.sha256(array.tobytes()).hexdigest()
    assert done.size_bytes == (tmp_path / "f").stat().st_size


def test_what_the_library_writes_is_read(tmp_path) -> None:
    save_file(ARRAYS, tmp_path / "f", metadata={"format": "np"})
    file = TensorFile(tmp_path / "f")
    assert sorted(file.names()) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        dtype, shape, data = file.tensor(name)
        assert (dtype, shape) == (NAMES[array.dtype.name], array.shape)
        assert bytes(data) == array.tobytes()


def test_the_header_has_a_digest_of_its_own(tmp_path) -> None:
    done = write_tensors(tmp_path / "f", {"a": stored(ARRAYS["float"])})
    assert TensorFile(tmp_path / "f").header_sha256 == done.header_sha256
    data = bytearray((tmp_path / "f").read_bytes())
    data[12] ^= 1
    (tmp_path / "f").write_bytes(data)
    assert TensorFile(tmp_path / "f").header_sha256 != done.header_sha256


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b'\x09\0\0\0\0\0\0\0{"a": {}}'])
def test_what_is_no_such_file_is_an_error(tmp_path, data) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(ValueError, match="header"):
        TensorFile(tmp_path / "f").names()


def test_a_tensor_that_is_not_there_is_an_error(tmp_path) -> None:
    write_tensors(tmp_path / "f", {"a": stored(ARRAYS["float"])})
    with pytest.raises(ValueError, match="no tensor 'b'"):
        TensorFile(tmp_path / "f").tensor("b")
