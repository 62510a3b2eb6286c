"""Pixels of an image: decoded from a file by Pillow, and brought to the one form of a dataset.

Shape legend: ``high``, ``wide`` (pixels of the file), ``channels`` (none where it is grey), ``size`` (of the dataset).
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from trainwright.spec.sections.data import ImagesSection
from trainwright.stages.data.optional import need

NEEDED_FOR = "reading images"
_WIDE_GREY = ("I;16", "I;16L", "I;16B", "I;16N")
"""Pillow's modes of grey pixels of 16 bits."""
_OTHER_NUMBERS = ("I", "F")
"""Modes whose pixels are no bytes and have no known largest value."""


class Undecodable(Exception):
    """A file that is no image that can be read; its text is the reason, which the report counts."""


def decoded(stream: BinaryIO) -> NDArray[np.uint8]:
    """Returns the pixels of an image file, turned as its camera says: ``[high, wide]``, or with 3 channels.

    Of several pictures in a file the first one counts. Transparency is dropped; 16 bits of grey become their upper 8.

    Raises:
        Undecodable: it is no image, is cut short or damaged, is too large, or its pixels are no bytes.
        MissingPackage: Pillow is not installed.
    """
    package, turned = need("PIL.Image", needed_for=NEEDED_FOR), need("PIL.ImageOps", needed_for=NEEDED_FOR)
    try:
        with package.open(stream) as image:
            image.load()
            upright = turned.exif_transpose(image)
            return _bytes(upright)
    except package.DecompressionBombError as error:
        raise Undecodable("more pixels than an image may have") from error
    except package.UnidentifiedImageError as error:
        raise Undecodable("not an image") from error
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError) as error:
        # What Pillow's readers raise on damaged files.
        raise Undecodable("damaged image") from error


def _bytes(image: Any) -> NDArray[np.uint8]:
    if image.mode in _OTHER_NUMBERS:
        raise Undecodable(f"pixels that are no bytes (mode {image.mode})")
    if image.mode in _WIDE_GREY:
        return (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
    return np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"), np.uint8)


def stored(pixels: NDArray[np.uint8], form: ImagesSection) -> NDArray[np.uint8]:
    """Returns an image as the dataset has it, ``[size, size, channels]``: in its colours, resized as it needs.

    Grey is ITU-R 601's luma of colours (Pillow's ``L``). Resizing is bilinear over the area that a pixel covers;
    proportions are not kept.

    Raises:
        MissingPackage: Pillow is not installed.
    """
    package = need("PIL.Image", needed_for=NEEDED_FOR)
    image = package.fromarray(pixels).convert("RGB" if form.channels == 3 else "L")
    if image.size != (form.size, form.size):
        image = image.resize((form.size, form.size), package.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(image, np.uint8).reshape(form.size, form.size, form.channels))
