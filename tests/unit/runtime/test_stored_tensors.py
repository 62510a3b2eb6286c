"""Bytes on disk and torch's tensors are the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fixtures.checkpoints import write_checkpoint
from trainwright.artifact.checkpoint.tensor_file import ELEMENT_BYTES
from trainwright.core.errors import DataError
from trainwright.runtime.stored_tensors import DTYPES, tensor_of, whole_weights

CPU, META = torch.device("cpu"), torch.device("meta")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_both_ways(dtype) -> None:
    tensor = torch.arange(6).to(dtype).reshape(2, 3)
    data = tensor.reshape(-1).view(torch.uint8).numpy().copy()
    assert tensor.element_size() == ELEMENT_BYTES[DTYPES[dtype]]
    found = tensor_of(data, DTYPES[dtype], (2, 3))
    assert found.dtype == dtype and torch.equal(found.float(), tensor.float())


def test_a_part_without_rows_has_a_shape_and_a_dtype() -> None:
    part = tensor_of(np.empty((0, 12), dtype=np.uint8), "F32", (0, 3))
    assert (part.shape, part.dtype) == ((0, 3), torch.float32)


def test_weights_are_whole_and_have_no_optimizer(tmp_path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(3, 2), "a.momentum": np.ones((3, 2), np.float32)}
    path = write_checkpoint(tmp_path / "c", arrays, {"a": [((0, 0), (3, 1)), ((0, 1), (3, 1))]})
    found = whole_weights(path, device=CPU)
    assert found.keys() == {"a"} and torch.equal(found["a"], torch.arange(6.0).reshape(3, 2))
    shapes = whole_weights(path, device=META)
    assert shapes["a"].is_meta and shapes["a"].shape == (3, 2)
    (path / "model-1.safetensors").unlink()
    with pytest.raises(DataError, match="missing"):
        whole_weights(path, device=CPU)


def test_a_file_of_another_size_is_found_without_its_values(tmp_path) -> None:
    path = write_checkpoint(tmp_path / "c", {"a": np.ones((3, 2), np.float32)})
    (path / "model-0.safetensors").write_bytes(b"short")
    with pytest.raises(DataError, match="its size changed"):
        whole_weights(path, device=META)
