"""What training changes of an image: it moves by some pixels, or is mirrored.

How an image is changed is a function of (seed, epoch, image) alone: no micro batch, rank or interruption changes it,
and in the next epoch it is changed in another way.

Shape legend: ``images``, ``channels``, ``side`` (pixels).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.runtime.rng import derive, uniforms

STREAM = 1
"""Keeps these numbers apart from those of the epoch's order, which ``derive(seed, epoch)`` keys."""
_DRAWS = 3
"""Numbers for each image: down, right, mirrored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """Shifts by up to ``shift`` pixels each way, all equally likely, and mirrors half of the images where ``flip``.

    What moves out of the image is gone, and zeros (black) come in behind it: padded by ``shift``, then cut.
    """

    shift: int = 0
    flip: bool = False
    seed: int = 0

    def __bool__(self) -> bool:
        """Returns whether it changes anything."""
        return self.shift > 0 or self.flip

    def __call__(
        self, images: NDArray[np.uint8], epochs: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> NDArray[np.uint8]:
        """Returns the images as an epoch shows them, ``[images, channels, side, side]``.

        Args:
            images: as they are stored, of the same shape.
            epochs: in which each is shown.
            numbers: of each in its split.
        """
        pairs = zip(epochs.tolist(), numbers.tolist(), strict=True)
        keys = np.array([derive(self.seed, STREAM, epoch, number) for epoch, number in pairs], np.uint64)
        draws = uniforms(keys, _DRAWS)
        moved = self._moved(images, (draws[:, :2] * (2 * self.shift + 1)).astype(np.int64))
        if self.flip:
            mirrored = draws[:, 2] < 0.5
            moved[mirrored] = moved[mirrored, :, :, ::-1]
        return moved

    def _moved(self, images: NDArray[np.uint8], corners: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Returns of each padded image the square that begins at its corner (row, column)."""
        side, reach = images.shape[-1], self.shift
        padded = np.pad(images, ((0, 0), (0, 0), (reach, reach), (reach, reach)))
        rows, columns = (corners[:, axis, None] + np.arange(side) for axis in (0, 1))
        first, channels = np.arange(len(images)), np.arange(images.shape[1])
        return padded[
            first[:, None, None, None], channels[None, :, None, None], rows[:, None, :, None], columns[:, None, None, :]
        ]
