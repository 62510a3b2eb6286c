"""A bundle has every weight of a checkpoint, whole, and nothing of the optimizer."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from trainwright.artifact.checkpoint import conversion
from trainwright.artifact.checkpoint.conversion import average, convert
from trainwright.core.errors import DataError, MachineError, RecipeError


def test_weights_are_put_together(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors, {"matrix": [((0, 0), (6, 1)), ((0, 1), (6, 3))]})
    size_bytes = convert(path, tmp_path / "new" / "bundle")
    found = load_file(tmp_path / "new" / "bundle" / "model.safetensors")
    assert found.keys() == {"matrix", "vector", "scale"}
    assert all(np.array_equal(found[name], tensors[name]) for name in found)
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == ["bundle"]
    names = sorted(each.name for each in (tmp_path / "new" / "bundle").iterdir())
    assert names == ["model.json", "model.safetensors", "tokenizer.json"]
    assert size_bytes == sum(each.stat().st_size for each in (tmp_path / "new" / "bundle").iterdir())


def test_averages_take_the_weights_place(make, tensors, tmp_path) -> None:
    weights = {name: tensor for name, tensor in tensors.items() if name != "matrix.momentum"}
    averages = {f"{name}.average": tensor + 1 for name, tensor in weights.items()}
    cuts = {"matrix.average": [((0, 0), (2, 4)), ((2, 0), (4, 4))]}
    convert(make(tmp_path / "c", {**tensors, **averages}, cuts), tmp_path / "bundle", averaged=True)
    found = load_file(tmp_path / "bundle" / "model.safetensors")
    assert found.keys() == weights.keys()
    assert all(np.array_equal(found[name], weights[name] + 1) for name in found)
    with pytest.raises(RecipeError, match="--averaged: the run kept no average"):
        convert(make(tmp_path / "other", tensors), tmp_path / "bundle-of-other", averaged=True)


def test_a_damaged_one_is_refused(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors)
    file = path / "model-0.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DataError, match="damaged tensor"):
        convert(path, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_nothing_is_written_over(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors)
    with pytest.raises(RecipeError, match="there already"):
        convert(path, tmp_path / "c")


def test_a_place_where_no_folder_can_be_is_named(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors)
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match=r"^/proc/x: cannot write.*; mend this, or name another FOLDER"):
        convert(path, Path("/proc/x"))
    with pytest.raises(MachineError, match="/file/x: cannot write: a file is where a folder should be"):
        convert(path, tmp_path / "file" / "x")


@pytest.mark.parametrize("ended", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_what_ends_it_half_way_leaves_nothing_hidden(make, tensors, tmp_path, monkeypatch, ended) -> None:
    """Least of all on the disk of which the message asks to free some."""
    path, write = make(tmp_path / "c", tensors), conversion.write_tensors

    def full(*arguments):
        write(*arguments)
        raise ended

    monkeypatch.setattr(conversion, "write_tensors", full)
    with pytest.raises((MachineError, KeyboardInterrupt)) as caught:
        convert(path, tmp_path / "there" / "bundle")
    assert list((tmp_path / "there").iterdir()) == []
    if isinstance(ended, OSError):
        assert str(caught.value).startswith(f"{tmp_path}/there/bundle: the disk is full")
        assert "parts are kept" not in str(caught.value)


def test_a_mean_is_of_all_whatever_layouts_wrote_them(make, tensors, tmp_path) -> None:
    cuts: list[dict] = [{}, {"matrix": [((0, 0), (6, 1)), ((0, 1), (6, 3))]}, {}]
    folders = []
    for number, pieces in enumerate(cuts):
        shifted = {name: np.asarray(tensor + np.float32(number**3), np.float32) for name, tensor in tensors.items()}
        folders.append((make(tmp_path / f"c{number}", shifted, pieces), shifted))
    average([path for path, _ in folders], tmp_path / "mean")
    found = load_file(tmp_path / "mean" / "model.safetensors")
    assert found.keys() == {"matrix", "vector", "scale"}
    for name, seen in found.items():
        exact = sum(each[name].astype(np.float64) for _, each in folders) / 3
        assert np.array_equal(seen, exact.astype(np.float32))


def test_means_of_one_or_of_two_networks_are_refused(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "c", tensors)
    for places in ([path], [path, path], []):
        with pytest.raises(RecipeError, match="a mean is of several checkpoints"):
            average(places, tmp_path / "mean")
    other = make(tmp_path / "other", tensors | {"vector": np.zeros(6, np.float32)})
    with pytest.raises(DataError, match="of two networks: vector differs"):
        average([path, other], tmp_path / "mean")
    third = make(tmp_path / "third", tensors)
    (third / "model.json").write_text('{"width": 1}')
    with pytest.raises(DataError, match=r"of two models: model\.json differs"):
        average([path, third], tmp_path / "mean")
    (path / "adapters.json").write_text("{}")
    with pytest.raises(RecipeError, match="the mean of adapters' factors is not that of what they add"):
        average([path, make(tmp_path / "fourth", tensors)], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
