"""What the headers of safetensors files say, read without torch: eight bytes, the header's length, and JSON.

The format: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

from trainwright.artifact.model_folder import (
    ADAPTERS,
    BUFFERS,
    HUGGINGFACE,
    LENGTH_BYTES,
    MOST_HEADER_BYTES,
    SHAPE_FILE,
    STORED,
    check_stored,
    weight_files,
)
from trainwright.core.errors import DataError
from trainwright.core.fingerprint import digest, file_digest

TORCH_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Of dtypes that weights are stored in, by what a header calls them."""


def check_headers(directory: Path) -> None:
    """Checks that the weights of a model are whole files of floating-point numbers, by their headers alone.

    Raises:
        DataError: a file is missing or damaged, or a weight is quantised; names the first.
    """
    for path in weight_files(directory):
        if not path.is_file():  # a named pipe would be waited for
            raise DataError("the weights are missing", where=path)
        try:
            dtypes = _dtypes(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError("cannot read the weights", where=path, seen=str(error)) from error
        for name, dtype in sorted(dtypes.items()):
            if not BUFFERS.search(name):
                check_stored(name, dtype, where=directory)


def model_digest(directory: Path) -> str:
    """Returns a sha256 of the shape and the weights of the model in a directory, wherever that lies.

    Raises:
        DataError: there is no model, or a file is missing.
    """
    shape = SHAPE_FILE if (directory / SHAPE_FILE).is_file() else HUGGINGFACE
    files = [directory / shape, *weight_files(directory)]
    files += [path for path in (directory / ADAPTERS,) if path.is_file()]
    for path in files:
        if not path.is_file():
            raise DataError("a file of this model is missing", where=path)
    return digest([(path.name, file_digest(path)) for path in files])


def _dtypes(path: Path) -> dict[str, str]:
    """Returns how each tensor of a file is stored, by name.

    Raises:
        ValueError: there is no header, or its tensors do not fill the file one after the other.
        KeyError, TypeError, AttributeError: an entry of the header has another form.
    """
    size_bytes = path.stat().st_size
    with path.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        if header_bytes > min(size_bytes - LENGTH_BYTES, MOST_HEADER_BYTES):
            raise ValueError(f"a header of {header_bytes} bytes in a file of {size_bytes}")
        tensors: dict[str, Any] = json.loads(stream.read(header_bytes))
    tensors.pop("__metadata__", None)
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        begin, after = tensor["data_offsets"]
        element_bytes = STORED.get(TORCH_NAMES.get(tensor["dtype"], ""))
        if begin != end or (element_bytes is not None and after - begin != prod(tensor["shape"]) * element_bytes):
            raise ValueError(f"{name} cannot be at bytes {begin} to {after}")
        end = after
    expected_bytes = LENGTH_BYTES + header_bytes + end
    if size_bytes != expected_bytes:
        raise ValueError(f"{size_bytes} bytes of {expected_bytes}")
    return {name: TORCH_NAMES.get(tensor["dtype"], str(tensor["dtype"]).lower()) for name, tensor in tensors.items()}
