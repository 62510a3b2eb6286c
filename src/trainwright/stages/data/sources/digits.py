"""The source ``sklearn-digits``: the images that scikit-learn brings along, read from its file."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import numpy as np

from trainwright.spec.sections.corpus.sources import DigitsSource
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import Source

IMAGES, SIDE, LARGEST = 1797, 8, 16
"""How many there are, their pixels in a row, and a pixel's largest value."""
PACKAGE = "sklearn"
FILE = Path("datasets", "data", "digits.csv.gz")
"""Below scikit-learn's folder: a line for each image, 64 pixels and the digit."""


def folder() -> Path:
    """Returns the folder of the installed scikit-learn; of one that is not installed its bare name."""
    try:
        found = find_spec(PACKAGE)
    except ValueError:  # sys.modules holds None for it: hidden on purpose
        found = None
    return Path(PACKAGE) if found is None or found.origin is None else Path(found.origin).parent


class SklearnDigits(Source[DigitsSource]):
    """The 8 x 8 images of handwritten digits that ``sklearn.datasets.load_digits`` returns, in its order."""

    Section = DigitsSource
    documents = IMAGES

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the installed scikit-learn has them: the package is found, not imported; without it no such file is."""
        return (str(folder() / FILE),)

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the images, each named by its line; values of 0 to 16 become bytes of 0 to 255."""
        del part
        for number, line in enumerate(stream, 1):
            values = line.split(b",")
            try:
                *pixels, digit = map(float, values)
                image = np.rint(np.array(pixels) * (255 / LARGEST)).astype(np.uint8).reshape(SIDE, SIDE)
            except ValueError:
                yield RawDocument(f":{number}", len(line), problem=f"not {SIDE * SIDE} pixels and a digit")
                continue
            yield RawDocument(f":{number}", len(line), label=str(int(digit)), pixels=image)

    def head(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields all images: the file is small."""
        return self.read(stream, part)
