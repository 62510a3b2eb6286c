"""Small checkpoints, written piece by piece as ranks would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fixtures.checkpoints import write_checkpoint


@pytest.fixture(scope="session")
def make() -> Callable[..., Path]:
    """Writes a checkpoint."""
    return write_checkpoint


@pytest.fixture(scope="session")
def tensors() -> dict[str, np.ndarray]:
    """A matrix, a vector and a state of the matrix."""
    dice = np.random.default_rng(1)
    shapes = {"matrix": (6, 4), "vector": (5,), "matrix.momentum": (6, 4), "scale": ()}
    return {name: np.asarray(dice.standard_normal(shape), np.float32) for name, shape in shapes.items()}
