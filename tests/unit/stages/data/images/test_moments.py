"""Mean and deviation are numpy's, in any order of the images."""

from __future__ import annotations

import numpy as np
import pytest

from trainwright.stages.data.images.moments import Moments


def test_they_are_those_of_all_values_of_a_channel() -> None:
    images = np.random.default_rng(2).integers(0, 256, (5, 4, 4, 3), np.uint8)
    there, back = Moments(channels=3), Moments(channels=3)
    for image in images:
        there.add(image.flatten())
    for image in images[::-1]:
        back.add(image.flatten())
    assert (there.mean, there.std) == (back.mean, back.std)
    assert there.mean == pytest.approx(tuple((images / 255).mean(axis=(0, 1, 2))), rel=1e-12)
    assert there.std == pytest.approx(tuple((images / 255).std(axis=(0, 1, 2))), rel=1e-12)


def test_a_channel_of_one_value_is_not_divided_by_zero() -> None:
    moments = Moments(channels=1)
    moments.add(np.full(7, 51, np.uint8))
    assert (moments.mean, moments.std) == ((0.2,), (1.0,))
