"""A list says of each checkpoint what it is, and of a broken one that it is."""

from __future__ import annotations

import pytest

from trainwright.artifact.checkpoint.listing import last_checkpoints, list_checkpoints
from trainwright.core.errors import DataError


def test_each_place_is_found(make, tensors, tmp_path) -> None:
    training = tmp_path / "runs" / "tiny" / "train-0"
    path = make(training / "checkpoints" / "step-00000007", tensors, layout={"dp_shard": 2}, metrics={"loss": 2.0})
    for place in (path.parent, training, training.parent, tmp_path / "runs"):
        (found,) = list_checkpoints(place)
        assert (found.path.name, found.step, found.loss) == ("step-00000007", 7, 1.5)
        assert (found.layout, found.metrics, found.damage) == ({"dp_shard": 2}, {"loss": 2.0}, None)


def test_what_is_broken_is_said(make, tensors, tmp_path) -> None:
    for step in (1, 2, 3):
        make(tmp_path / f"step-0000000{step}", tensors)
    (tmp_path / "step-00000002" / "model-0.safetensors").unlink()
    (tmp_path / "step-00000003" / "checkpoint.json").write_text("{")
    make(tmp_path / ".step-00000004", tensors)
    (tmp_path / "step-00000005").mkdir()
    said = {each.path.name: each.damage for each in list_checkpoints(tmp_path)}
    assert said["step-00000001"] is None
    assert "model-0.safetensors: a file of this checkpoint is missing" in str(said["step-00000002"])
    assert "index" in str(said["step-00000003"])
    with (tmp_path / "step-00000001" / "model-0.safetensors").open("ab") as file:
        file.write(b" ")
    (make(tmp_path / "step-00000006", tensors) / "checkpoint.json").write_text('{"format": 1}')
    states = {each.path.name: each.state for each in list_checkpoints(tmp_path)}
    assert states == {
        "step-00000001": "damaged",
        "step-00000002": "missing files",
        "step-00000003": "damaged",
        ".step-00000004": "incomplete",
        "step-00000005": "incomplete",
        "step-00000006": "other format",
    }
    assert all("incomplete" in str(said[name]) for name in (".step-00000004", "step-00000005"))


def test_nothing_is_an_error(tmp_path) -> None:
    with pytest.raises(DataError, match="no checkpoints here"):
        list_checkpoints(tmp_path)


def test_the_last_of_a_training_are_those_that_are_complete(make, tensors, tmp_path) -> None:
    for step in (1, 2, 3):
        make(tmp_path / "checkpoints" / f"step-0000000{step}", tensors)
    make(tmp_path / "checkpoints" / ".step-00000004", tensors)
    for place in (tmp_path, tmp_path / "checkpoints"):
        assert [path.name[-1] for path in last_checkpoints(place, 2)] == ["2", "3"]
    with pytest.raises(DataError, match="too few checkpoints in this training"):
        last_checkpoints(tmp_path, 4)
    with pytest.raises(DataError, match="no training with checkpoints here"):
        last_checkpoints(tmp_path / "nowhere", 2)
