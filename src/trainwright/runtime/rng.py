"""Counter-based randomness: every random order is a pure function of (seed, counter), so state is small integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
_MASK64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def derive(seed: int, *counters: int) -> int:
    """Returns a 64-bit key from a seed and counters, each step a SplitMix64 finaliser (Steele et al., 2014)."""
    state = seed & _MASK64
    for counter in counters:
        state = _mix(state + _GOLDEN * (counter + 1))
    return _mix(state)


def _mix(value: int) -> int:
    value &= _MASK64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK64
    return value ^ (value >> 31)


def uniforms(keys: NDArray[np.uint64], draws: int) -> NDArray[np.float64]:
    """Returns so many numbers in [0, 1) for each key, ``[keys, draws]``: SplitMix64's stream from that key."""
    state = keys[:, None] + np.uint64(_GOLDEN) * np.arange(1, draws + 1, dtype=np.uint64)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((state ^ (state >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


def permute(indices: NDArray[np.int64], size: int, key: int) -> NDArray[np.int64]:
    """Returns the images of ``indices`` under a keyed pseudo-random permutation of ``range(size)``.

    A balanced Feistel network over the next even power of two, walked until the result falls into the range (Black
    and Rogaway, 2002). Any element is found without making the others, whatever the size.

    Args:
        indices: values in [0, size).
        size: length of the permuted range, at least 1.
        key: which permutation.
    """
    half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    keys = np.array([derive(key, number) for number in range(_ROUNDS)], dtype=np.uint64)
    result = indices.astype(np.uint64)
    outside = np.ones(result.shape, dtype=bool)
    while outside.any():
        result[outside] = _feistel(result[outside], half_bits, keys)
        outside = result >= np.uint64(size)
    return result.astype(np.int64)


def _feistel(values: NDArray[np.uint64], half_bits: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        mixed = (right ^ key) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
        left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(32))) & mask)
    return (left << shift) | right
