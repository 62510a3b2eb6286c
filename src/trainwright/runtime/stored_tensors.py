"""Torch's side of tensors on disk: names of dtypes, and tensors from the bytes that ``artifact.checkpoint`` reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.model_folder import SHAPE_FILE, TOKENIZER
from trainwright.core.registry import load

if TYPE_CHECKING:
    from trainwright.artifact.checkpoint.reader import CheckpointReader

READER = "trainwright.artifact.checkpoint.reader:CheckpointReader"
"""Not needed by what writes checkpoints and knows dtypes from here."""

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The names that safetensors has for dtypes."""
_TORCH = {name: dtype for dtype, name in DTYPES.items()}


def tensor_of(data: NDArray[np.uint8], dtype: str, shape: Iterable[int]) -> Tensor:
    """Returns a tensor over bytes, without a copy; ``dtype`` is safetensors' name."""
    if not data.size:  # of rows that ranks do not divide some have none
        return torch.empty(tuple(shape), dtype=_TORCH[dtype])
    return torch.from_numpy(data).view(_TORCH[dtype]).reshape(tuple(shape))


def whole_weights(directory: Path, *, device: torch.device) -> dict[str, Tensor]:
    """Returns the weights of a checkpoint, put together from the pieces that its ranks wrote.

    Args:
        directory: the checkpoint.
        device: where to put them; on ``meta`` the index alone is read, and the files' sizes are compared.

    Raises:
        DataError: it is incomplete or damaged; names the tensor.
    """
    reader: CheckpointReader = load(READER, kind="checkpoint")(directory)
    index, shapes_alone = reader.index, device.type == "meta"
    beside = {SHAPE_FILE, TOKENIZER} & index.files.keys()
    files = {piece.file for tensor in index.model.values() for piece in tensor.pieces}
    for problem in reader.damages(files | beside, deep=not shapes_alone):
        raise problem
    if shapes_alone:
        return {
            name: torch.empty(tensor.shape, dtype=_TORCH[tensor.dtype], device=device)
            for name, tensor in index.model.items()
        }
    return {
        name: tensor_of(reader.whole(name, tensor), tensor.dtype, tensor.shape).to(device)
        for name, tensor in index.model.items()
    }
