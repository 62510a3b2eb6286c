"""Mean and deviation of each channel, from exact sums: no order of images changes a bit of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LARGEST = 255


@dataclass(kw_only=True, slots=True)
class Moments:
    """Sums of values and of their squares, by channel."""

    channels: int
    pixels: int = 0
    sums: list[int] = field(default_factory=list)
    squares: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sums, self.squares = [0] * self.channels, [0] * self.channels

    def add(self, values: NDArray[np.uint8]) -> None:
        """Adds the values of an image, whose last dim is the channel: ``[pixels * channels]``."""
        by_channel = values.reshape(-1, self.channels).astype(np.uint64)
        self.pixels += len(by_channel)
        for channel in range(self.channels):
            column = by_channel[:, channel]
            self.sums[channel] += int(column.sum())
            self.squares[channel] += int((column * column).sum())

    @property
    def mean(self) -> tuple[float, ...]:
        """Returns the mean of each channel, of values of 0 to 1."""
        return tuple(each / self.pixels / LARGEST for each in self.sums)

    @property
    def std(self) -> tuple[float, ...]:
        """Returns the standard deviation of each channel, of values of 0 to 1; 1 where all are equal."""
        pairs = zip(self.sums, self.squares, strict=True)
        # n * sum of squares - square of the sum, in whole numbers: zero exactly where all values are equal.
        spreads = (self.pixels * square - each * each for each, square in pairs)
        return tuple(spread**0.5 / self.pixels / LARGEST or 1.0 for spread in spreads)
