"""Which documents a tokenizer is trained on, and which ones encoders are compared on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trainwright.stages.data.parts import TERMINATOR, publish, read_documents

_SAMPLE_BYTES = 256 << 10
"""Documents that both encoders encode before one of them encodes everything."""


def training_sample(documents: Iterable[Path], sample_bytes: int, scratch: Path) -> list[Path]:
    """Returns files with the first ``sample_bytes``, whole documents: a uniform sample, as they are in hash order.

    Args:
        documents: ``.docs`` files of the train split.
        sample_bytes: how much to take.
        scratch: where a file that is taken in part is written anew.
    """
    left = sample_bytes
    taken = []
    for path in documents:
        if path.stat().st_size <= left:
            taken.append(path)
            left -= path.stat().st_size
            continue
        texts = []
        for text in read_documents(path):
            left -= len(text) + len(TERMINATOR)
            if left < 0:
                break
            texts.append(text)
        if texts or not taken:
            publish(scratch / "sample.docs", [text + TERMINATOR for text in texts])
            taken.append(scratch / "sample.docs")
        break
    return taken


def first_texts(documents: Iterable[Path]) -> list[bytes]:
    """Returns the first documents of these files, as many as encoders are compared on."""
    sample: list[bytes] = []
    size = 0
    for path in documents:
        for text in read_documents(path):
            if size >= _SAMPLE_BYTES:
                return sample
            sample.append(text)
            size += len(text)
    return sample
