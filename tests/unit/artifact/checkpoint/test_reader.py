"""Any rectangle of a tensor comes back from whatever pieces it was written in, and damage has a name."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.artifact.checkpoint.index import INDEX, read_index
from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.core.errors import DataError

SHAPE = (5, 4, 3)


def cut(draw: st.DataObject, size: int) -> list[range]:
    """A dim cut into neighbours of any sizes."""
    places = sorted({0, size, *draw.draw(st.lists(st.integers(1, size - 1), max_size=3))})
    return [range(low, high) for low, high in pairwise(places)]


@given(draw=st.data())
def test_every_layout_reads_every_layout(make, tmp_path_factory, draw) -> None:
    whole = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    pieces = [
        (tuple(each.start for each in cell), tuple(len(each) for each in cell))
        for cell in product(*(cut(draw, size) for size in SHAPE))
    ]
    path = make(tmp_path_factory.mktemp("c") / "c", {"a": whole}, {"a": draw.draw(st.permutations(pieces))})
    wanted = [draw.draw(st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted)) for size in SHAPE]
    offsets, shape = [low for low, _ in wanted], [high - low for low, high in wanted]
    reader = CheckpointReader(path)
    found = reader.region("a", reader.index.model["a"], offsets, shape).view(np.float32)
    assert np.array_equal(found, whole[tuple(slice(low, high) for low, high in wanted)].reshape(-1))


def test_only_the_pieces_that_are_needed_are_read(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors, {"matrix": [((0, 0), (3, 4)), ((3, 0), (3, 4))]})
    (path / "model-1.safetensors").unlink()
    reader = CheckpointReader(path)
    found = reader.region("matrix", reader.index.model["matrix"], (1, 1), (2, 3))
    assert np.array_equal(found.view(np.float32), tensors["matrix"][1:3, 1:4].reshape(-1))
    with pytest.raises(DataError, match="cannot read matrix"):
        reader.whole("matrix", reader.index.model["matrix"])


def test_a_number_is_a_tensor_too(make, tensors, tmp_path) -> None:
    reader = CheckpointReader(make(tmp_path / "c", tensors))
    assert reader.whole("scale", reader.index.model["scale"]).view(np.float32) == tensors["scale"]


def test_pieces_that_leave_a_hole_are_refused(make, tensors, tmp_path) -> None:
    reader = CheckpointReader(make(tmp_path / "c", tensors, {"matrix": [((0, 0), (3, 4))]}))
    with pytest.raises(DataError, match="do not make the part that this layout needs") as caught:
        reader.region("matrix", reader.index.model["matrix"], (2, 0), (2, 4))
    assert caught.value.seen == "4 elements" and caught.value.expected == "8"


def test_a_layer_in_place_of_another_is_refused(make, tensors, tmp_path) -> None:
    """Two tensors of equal shape, whose bytes are exchanged: every byte of the file is one that was written."""
    path = make(tmp_path / "c", tensors | {"other": tensors["matrix"] + 1})
    data = (path / "model-0.safetensors").read_bytes()
    mine, other = tensors["matrix"].tobytes(), (tensors["matrix"] + 1).tobytes()
    assert data.count(mine) == data.count(other) == 1
    exchanged = data.replace(mine, b"*" * len(mine)).replace(other, mine).replace(b"*" * len(mine), other)
    (path / "model-0.safetensors").write_bytes(exchanged)
    problems = [str(each) for each in CheckpointReader(path).damages()]
    assert ["damaged tensor matrix" in problems[0], "damaged tensor other" in problems[1]] == [True, True]
    assert all("model-0.safetensors" in each for each in problems)


def test_names_that_are_exchanged_are_refused(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors | {"others": tensors["matrix"] + 1})
    data = (path / "model-0.safetensors").read_bytes()
    for old, new in ((b'"matrix"', b'"******"'), (b'"others"', b'"matrix"'), (b'"******"', b'"others"')):
        data = data.replace(old, new)
    (path / "model-0.safetensors").write_bytes(data)
    (problem,) = CheckpointReader(path).damages()
    assert "header is not the one that was written (5 tensors" in str(problem)


def test_every_flipped_byte_is_found(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors)
    for file in sorted(path.iterdir()):
        if file.name == INDEX:
            continue
        data = file.read_bytes()
        for place in range(0, len(data), 13):
            file.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
            problems = [str(each) for each in CheckpointReader(path).damages()]
            assert len(problems) == 1 and file.name in problems[0], (file.name, place)
        file.write_bytes(data)
    assert list(CheckpointReader(path).damages()) == []


def test_sizes_alone_are_looked_at_where_nothing_is_read(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors)
    file = path / "model-0.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert list(CheckpointReader(path).damages(deep=False)) == []
    file.write_bytes(data[:-1])
    (problem,) = CheckpointReader(path).damages(deep=False)
    assert "its size changed (4 tensors" in str(problem)
    file.unlink()
    (problem,) = CheckpointReader(path).damages(deep=False)
    assert "missing" in str(problem)


def test_a_file_of_a_share_is_checked_alone(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors)
    (path / "model-0.safetensors").unlink()
    assert list(CheckpointReader(path).damages(["model.json"])) == []


def test_an_index_of_another_dtype_is_refused(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors)
    other = make(tmp_path / "d", {name: each.reshape(-1) for name, each in tensors.items()})
    shutil.copyfile(other / "model-0.safetensors", path / "model-0.safetensors")
    reader = CheckpointReader(path)
    with pytest.raises(DataError, match="matrix is another tensor than the index says"):
        reader.whole("matrix", reader.index.model["matrix"])
    assert json.loads((path / INDEX).read_text())["format"] == read_index(path).format
