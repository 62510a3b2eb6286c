"""What is read of a weights file without torch agrees with the format's own library."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file

from trainwright.artifact.weight_headers import check_headers
from trainwright.core.errors import DataError

WEIGHTS = {"b": torch.ones(3, 2), "a": torch.ones(5, dtype=torch.bfloat16), "none": torch.ones(0, 4)}


def header(change) -> bytes:
    """A file of ``WEIGHTS`` with its header changed."""
    data = save(WEIGHTS)
    size = int.from_bytes(data[:8], "little")
    described = json.loads(data[8 : 8 + size])
    change(described)
    text = json.dumps(described).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        save(WEIGHTS)[:7],
        save(WEIGHTS)[:40],
        save(WEIGHTS)[:-1],
        save(WEIGHTS) + b"x",
        b"\xff" * 8 + save(WEIGHTS)[8:],
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"\xff\xfe{}",
        header(lambda entries: entries["a"].update(data_offsets=[0, 10])),
        header(lambda entries: entries["b"].update(shape=[3, 3])),
        header(lambda entries: entries["b"].update(dtype="F64")),
        header(lambda entries: entries["b"].update(data_offsets=5)),
        header(lambda entries: entries["b"].pop("shape")),
        header(lambda entries: entries.update(b=7)),
    ],
)
def test_a_file_that_the_library_cannot_read_is_refused(tmp_path, data) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises((SafetensorError, OSError)):
        load_file(path)
    with pytest.raises(DataError, match="cannot read the weights") as caught:
        check_headers(tmp_path)
    assert caught.value.where == str(path)


def test_a_file_that_the_library_reads_is_taken(tmp_path) -> None:
    save_file(WEIGHTS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    check_headers(tmp_path)
    save_file({}, tmp_path / "model.safetensors")
    check_headers(tmp_path)


def test_integers_are_refused_but_for_masks_that_were_stored_beside_weights(tmp_path) -> None:
    whole = torch.ones(4, dtype=torch.int8)
    save_file({"h.0.attn.bias": whole, "a": torch.ones(1)}, tmp_path / "model.safetensors")
    check_headers(tmp_path)
    save_file({"weight": whole}, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=r"weight weight is quantised \(seen i8"):
        check_headers(tmp_path)


def test_every_file_of_an_index_is_looked_at(tmp_path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "1", "b": "2"}}))
    save_file({"a": torch.ones(1)}, tmp_path / "1")
    with pytest.raises(DataError, match="the weights are missing") as caught:
        check_headers(tmp_path)
    assert caught.value.where == str(tmp_path / "2")
    save_file({"b": torch.ones(1)}, tmp_path / "2")
    check_headers(tmp_path)
