"""What is reached without a network, on the same documents: general compressors and byte n-grams, in bits per byte.

A model that does not beat ``gzip`` has learned less than repetition; one that does not beat an n-gram has learned less
than counting.
"""

from __future__ import annotations

import gzip
import lzma
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainwright.stages.evaluate.ngram import NGram, bits, stream

ORDERS = (3, 5, 8)
"""n-grams from one that forgets at once to the longest whose keys fit in 64 bits."""

NGRAM_TRAIN_BYTES = 32 << 20
"""Training text an n-gram counts at most: bounds its memory to about 1 GB and its time to seconds."""

SPLIT_BYTES = 16 << 20
"""Text of a split that baselines are measured on at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """Bits per byte of ``documents`` whole documents with ``text_bytes`` bytes; ``train_bytes`` it has learned from."""

    name: str
    bits_per_byte: float
    documents: int
    text_bytes: int
    train_bytes: int
    seconds: float


def take(documents: Iterator[bytes], limit_bytes: int) -> list[bytes]:
    """Returns the first whole documents that stay within ``limit_bytes``; at least one where there is one."""
    taken: list[bytes] = []
    size = 0
    for document in documents:
        size += len(document)
        if taken and size > limit_bytes:
            break
        taken.append(document)
    return taken


def compressors(documents: Sequence[bytes]) -> list[Baseline]:
    """``gzip -9`` and ``xz -6`` of each document by itself, container headers included."""
    return [
        _compressed("gzip -9", documents, lambda text: gzip.compress(text, 9, mtime=0)),
        _compressed("xz -6", documents, lambda text: lzma.compress(text, preset=6)),
    ]


def ngrams(
    train: Sequence[bytes], splits: Sequence[Sequence[bytes]], *, orders: Sequence[int] = ORDERS
) -> list[list[Baseline]]:
    """For each split, Kneser-Ney byte n-grams counted on ``train``; the end of each document is coded too.

    An order that the training text is too short for is left out.
    """
    text = stream(train)
    by_split: list[list[Baseline]] = [[] for _ in splits]
    for order in orders:
        if len(text) <= order:
            continue
        started = time.perf_counter()
        model = NGram(text, order=order)
        counted_s = time.perf_counter() - started
        for baselines, documents in zip(by_split, splits, strict=True):
            started = time.perf_counter()
            size = sum(map(len, documents))
            baselines.append(
                Baseline(
                    name=f"{order}-gram",
                    bits_per_byte=bits(model, stream(documents)) / size,
                    documents=len(documents),
                    text_bytes=size,
                    train_bytes=sum(map(len, train)),
                    seconds=counted_s + time.perf_counter() - started,
                )
            )
    return by_split


def _compressed(name: str, documents: Sequence[bytes], compress: Callable[[bytes], bytes]) -> Baseline:
    started = time.perf_counter()
    size = sum(map(len, documents))
    packed = sum(len(compress(document)) for document in documents)
    return Baseline(
        name=name,
        bits_per_byte=8 * packed / size,
        documents=len(documents),
        text_bytes=size,
        train_bytes=0,
        seconds=time.perf_counter() - started,
    )
