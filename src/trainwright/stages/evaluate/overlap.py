"""How much of a completion stands word for word in the training text: the longest common substring, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WINDOW = 8
"""Bytes compared at once, as one 64-bit integer."""

_BLOCK = 1 << 20
_LONG = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """The longest part of a completion that occurs in the training text, and the share of the completion that it is."""

    text: str
    size_bytes: int
    share: float


def longest_overlap(completion: bytes, text: bytes) -> Overlap:
    """Returns the longest common substring of ``completion`` and ``text``; the first where several are equally long.

    Long matches are searched for only where windows of ``WINDOW`` bytes already agree, so that a large text is read
    once and not once per byte of the completion.
    """
    best = b""
    edges = _agreement(completion, text)
    for minimum in (_LONG, WINDOW):
        best = _grow(completion, _stretches(text, edges, minimum))
        if len(best) >= minimum:
            break
    else:
        best = _grow(completion, text)
    share = len(best) / len(completion) if completion else 0.0
    return Overlap(text=best.decode("utf-8", errors="replace"), size_bytes=len(best), share=share)


def _grow(completion: bytes, text: bytes) -> bytes:
    best = b""
    for start in range(len(completion)):
        while start + len(best) < len(completion) and completion[start : start + len(best) + 1] in text:
            best = completion[start : start + len(best) + 1]
    return best


def _agreement(completion: bytes, text: bytes) -> NDArray[np.int64]:
    """Where windows of ``text`` begin that the completion has too: starts and ends of successive ones, in turn."""
    wanted = np.unique(_windows(np.frombuffer(completion, np.uint8)))
    # Most windows are ruled out by 16 bits of a multiplicative hash, the others by a search among all the wanted.
    likely = np.zeros(1 << 16, bool)
    likely[_hash(wanted)] = True
    symbols = np.frombuffer(text, np.uint8)
    shared = []
    for start in range(0, len(symbols) if len(wanted) else 0, _BLOCK):
        keys = _windows(symbols[start : start + _BLOCK + WINDOW - 1])
        places = np.flatnonzero(likely[_hash(keys)])
        shared.append(start + places[np.isin(keys[places], wanted)])
    hits = np.concatenate(shared) if shared else np.empty(0, np.int64)
    breaks = np.flatnonzero(np.diff(hits) != 1)
    starts = hits[np.append(0, breaks + 1)] if len(hits) else hits
    ends = hits[np.append(breaks, len(hits) - 1)] + 1 if len(hits) else hits
    return np.stack((starts, ends))


def _stretches(text: bytes, edges: NDArray[np.int64], minimum: int) -> bytes:
    """Returns every part of ``text`` that may share ``minimum`` bytes or more with the completion, joined by 0xFF.

    Shared text of L bytes shows as ``L - WINDOW + 1`` successive windows that the completion has too.
    """
    long_enough = edges[1] - edges[0] >= minimum - WINDOW + 1
    pieces = edges[:, long_enough].T.tolist()
    return b"\xff".join(dict.fromkeys(text[start : end + WINDOW - 1] for start, end in pieces))


def _hash(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return keys * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(48)


def _windows(symbols: NDArray[np.uint8]) -> NDArray[np.uint64]:
    count = max(0, len(symbols) - WINDOW + 1)
    keys = np.zeros(count, np.uint64)
    for offset in range(WINDOW):
        keys <<= np.uint64(8)
        keys |= symbols[offset : offset + count]
    return keys
