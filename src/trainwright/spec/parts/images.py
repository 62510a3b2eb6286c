"""How images of a dataset are stored and normalised."""

from __future__ import annotations

from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageForm:
    """Squares of bytes, ``[size, size, channels]``, and what is known of the train split's.

    Attributes:
        size: pixels, wide and high.
        channels: 3 (red, green, blue), or 1 (grey).
        mean: of each channel over the train split, of values of 0 to 1 (a byte's share of 255).
        std: their standard deviation; 1 where all are equal.
    """

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def values(self) -> int:
        """Returns the bytes of an image."""
        return self.size * self.size * self.channels
