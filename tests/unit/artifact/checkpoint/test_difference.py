"""Two checkpoints are compared number by number, whatever pieces they were written in."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest

from trainwright.artifact.checkpoint.difference import TensorDifference, differences
from trainwright.artifact.checkpoint.numbers import as_numbers
from trainwright.core.errors import DataError


def test_equal_numbers_in_other_pieces_are_equal(make, tensors, tmp_path) -> None:
    one = make(tmp_path / "one", tensors)
    other = make(tmp_path / "other", tensors, {"matrix": [((0, 0), (1, 4)), ((1, 0), (5, 4))]})
    assert list(differences(one, other)) == []


def test_what_differs_is_measured(make, tensors, tmp_path) -> None:
    changed = {name: array.copy() for name, array in tensors.items()}
    changed["matrix"][2, 1] += 0.5
    changed["matrix.momentum"][0, 0] = math.nan
    first, second = make(tmp_path / "one", changed), make(tmp_path / "two", tensors)
    found = {each.name: each for each in differences(first, second)}
    assert found.keys() == {"matrix", "matrix.momentum"}
    matrix = found["matrix"]
    assert (matrix.kind, matrix.elements) == ("values", 1)
    assert matrix.max_abs == pytest.approx(0.5, rel=1e-6)
    assert matrix.relative == pytest.approx(0.5 / float(np.linalg.norm(tensors["matrix"])), rel=1e-5)
    assert found["matrix.momentum"].max_abs is not None and math.isnan(found["matrix.momentum"].max_abs)


def test_names_and_shapes_are_compared_first(make, tensors, tmp_path) -> None:
    other = dict(tensors) | {"vector": tensors["vector"].reshape(5, 1), "more": tensors["vector"]}
    del other["scale"]
    found = {each.name: each for each in differences(make(tmp_path / "a", tensors), make(tmp_path / "b", other))}
    assert found == {
        "more": TensorDifference(name="more", kind="missing", seen="missing", expected="there"),
        "scale": TensorDifference(name="scale", kind="missing", seen="there", expected="missing"),
        "vector": TensorDifference(name="vector", kind="shape", seen="(5,)", expected="(5, 1)"),
    }


def test_bf16_is_the_upper_half_of_fp32() -> None:
    numbers = np.array([1.5, -2.0, 0.0], np.float32)
    upper = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    assert as_numbers(upper.view(np.uint8), "BF16").tolist() == [1.5, -2.0, 0.0]
    assert as_numbers(upper.view(np.uint8), "F8_E4M3") is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "damaged tensor"),
        (lambda data: bytes(len(data)), "damaged file"),
        (lambda data: data[:-1], "its size changed"),
        (None, "missing"),
    ],
    ids=["flipped", "garbage", "torn", "missing"],
)
@pytest.mark.parametrize("place", ["first", "second"])
def test_a_damaged_one_is_not_the_same(make, tensors, tmp_path, place, change, said) -> None:
    """The index agrees in each case: what lies there decides."""
    good = make(tmp_path / "good", tensors)
    bad = shutil.copytree(good, tmp_path / "bad")
    file = bad / "model-0.safetensors"
    if change is None:
        file.unlink()
    else:
        file.write_bytes(change(file.read_bytes()))
    with pytest.raises(DataError, match=said) as caught:
        list(differences(*((bad, good) if place == "first" else (good, bad))))
    assert str(caught.value).startswith(str(file))
