"""An index is whole or refused."""

from __future__ import annotations

import json

import pytest

from trainwright.artifact.checkpoint.index import INDEX, checkpoints_in, folder_of, read_index, step_of
from trainwright.core.errors import DataError


def test_it_comes_back_as_it_was_written(make, tensors, tmp_path) -> None:
    index = read_index(make(tmp_path / "c", tensors, layout={"pp": 2}, metrics={"loss": 1.25}))
    assert (index.step, index.layout, index.loss, index.metrics) == (7, {"pp": 2}, 1.5, {"loss": 1.25})
    assert sorted(index.model) == ["matrix", "scale", "vector"]
    assert [name for name, _ in index.tensors()] == [*index.model, "matrix.momentum"]
    assert index.size_bytes == sum(path.stat().st_size for path in (tmp_path / "c").iterdir() if path.name != INDEX)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": 8}, "its own sha256"),
        ({"format": 3}, "another format"),
        ({"sha256": "0"}, "its own sha256"),
    ],
)
def test_a_changed_one_is_refused(make, tensors, tmp_path, change, said) -> None:
    path = make(tmp_path / "c", tensors) / INDEX
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=said):
        read_index(path.parent)


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_what_is_none_is_refused(tmp_path, text) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(DataError, match="cannot be read|another format"):
        read_index(tmp_path)


def test_a_folder_without_one_is_no_checkpoint(make, tensors, tmp_path) -> None:
    (tmp_path / folder_of(9)).mkdir()
    make(tmp_path / folder_of(12), tensors)
    make(tmp_path / folder_of(3), tensors)
    assert [step_of(path) for path in checkpoints_in(tmp_path)] == [3, 12]
    with pytest.raises(DataError, match="no complete checkpoint"):
        read_index(tmp_path / folder_of(9))
