"""Stored elements as numbers that numpy computes with, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMPY: Mapping[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.uint8,
}
"""numpy's dtype by safetensors' name; numpy has none for bfloat16 and float8."""
FLOATS = ("F64", "F32", "F16", "BF16")
"""Numbers of floating point that are read and stored here."""
_LOW = 16
"""Bits of fp32 that bfloat16 leaves out."""


def as_numbers(data: NDArray[np.uint8], dtype: str) -> NDArray[np.float64] | None:
    """Returns bytes as numbers; None where numpy has no such dtype."""
    if dtype == "BF16":
        wide = data.view(np.uint16).astype(np.uint32) << _LOW
        return wide.view(np.float32).astype(np.float64)
    return data.view(NUMPY[dtype]).astype(np.float64) if dtype in NUMPY else None


def as_stored(numbers: NDArray[np.float64], dtype: str) -> NDArray[np.uint8]:
    """Returns finite numbers as bytes of one of ``FLOATS``, each rounded to the nearest, of two to the even one.

    To bfloat16 they are rounded by way of fp32, as torch does.
    """
    if dtype != "BF16":
        return numbers.astype(NUMPY[dtype]).view(np.uint8)
    bits = numbers.astype(np.float32).view(np.uint32)
    even = (bits >> _LOW) & 1
    return ((bits + 0x7FFF + even) >> _LOW).astype(np.uint16).view(np.uint8)
