"""Bytes become numbers and numbers bytes as torch has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trainwright.artifact.checkpoint.numbers import FLOATS, as_numbers, as_stored

TORCH = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_are_rounded_as_torch_rounds_them(dtype: str) -> None:
    numbers = torch.randn(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    halves = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 1 + 2**-11, 0.0, -0.0, 2.0**-130])  # bf16's ties
    numbers = torch.cat([numbers, halves.double()])
    stored = numbers.float().to(TORCH[dtype]) if dtype == "BF16" else numbers.to(TORCH[dtype])
    expected = stored.view(torch.uint8).numpy()
    assert np.array_equal(as_stored(numbers.numpy(), dtype), expected)
    read = as_numbers(expected.copy(), dtype)
    assert read is not None and np.array_equal(read, stored.double().numpy())


def test_a_dtype_that_numpy_lacks_has_no_numbers() -> None:
    assert as_numbers(np.zeros(4, np.uint8), "F8_E4M3") is None
    whole = as_numbers(np.array([-3, 4], np.int32).view(np.uint8), "I32")
    assert whole is not None and whole.tolist() == [-3, 4]
