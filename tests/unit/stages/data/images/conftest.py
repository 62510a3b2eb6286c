"""Folders of small images that differ."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def pictures(tmp_path):
    """Writes so many random images of each class into folders; returns the folder of the folders."""

    def write(count=10, classes=("cat", "dog"), size=6, seed=0):
        random, root = np.random.default_rng(seed), tmp_path / "pictures"
        for name in classes:
            (root / name).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = random.integers(0, 256, (size, size, 3), np.uint8)
                Image.fromarray(pixels).save(root / name / f"{number:03}.png")
        return root

    return write
