"""A byte n-gram with interpolated Kneser-Ney smoothing: what counting alone achieves on the same text.

The stream is bytes with ``END`` between documents; 0xFF occurs in no UTF-8 text, so it is a symbol of its own. It is
predicted like any other, as a language model predicts its end-of-text token.

Source: Kneser and Ney, "Improved backing-off for m-gram language modeling" (1995), in the interpolated form of Chen and
Goodman, "An empirical study of smoothing techniques for language modeling" (1999), section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

END = 0xFF
"""The symbol between documents."""

MAX_ORDER = 8
"""The longest n-gram that fits in 64 bits."""

SYMBOLS = 256
_BLOCK = 1 << 20

_Keys = NDArray[np.uint64]


def stream(documents: Iterable[bytes]) -> bytes:
    """Documents as one stream: ``END`` before the first, between two, and after the last."""
    end = bytes([END])
    return end + end.join(documents) + end


@dataclass(frozen=True, kw_only=True, slots=True)
class _Order:
    """Counts of one order: sorted n-grams as integers, and what is known of each context (all but the last byte)."""

    grams: _Keys
    counts: NDArray[np.int64]
    contexts: _Keys
    context_counts: NDArray[np.int64]
    context_types: NDArray[np.int64]
    discount: float


class NGram:
    """Probabilities of the next byte given the ``order - 1`` bytes before it.

    The highest order counts occurrences; each lower order counts in how many different bytes its n-gram was preceded
    by, as Kneser and Ney have it. Below order 1 stands the uniform distribution over ``SYMBOLS``.

    Args:
        text: the training stream, see ``stream``; longer than ``order``.
        order: length of the longest n-gram, 1 to ``MAX_ORDER``.

    Memory: about ``8 (len(text) + 2 distinct n-grams)`` bytes per order at the peak, dominated by the highest order.
    """

    def __init__(self, text: bytes, *, order: int) -> None:
        assert 1 <= order <= MAX_ORDER, order
        assert len(text) > order, "the training text is shorter than one n-gram"
        self.order = order
        grams, counts = np.unique(_grams(np.frombuffer(text, np.uint8), order), return_counts=True)
        orders = [_order(grams, counts)]
        for shorter in range(order - 1, 0, -1):
            grams, counts = np.unique(grams & _mask(shorter), return_counts=True)
            orders.append(_order(grams, counts))
        self._orders = tuple(reversed(orders))

    def probabilities(self, text: bytes) -> NDArray[np.float64]:
        """Returns the probability of every byte of ``text`` but the first, given what stands before it."""
        symbols = np.frombuffer(text, np.uint8)
        parts = [
            self._block(symbols[max(0, start - self.order + 1) : start + _BLOCK], min(start, self.order - 1))
            for start in range(1, len(symbols), _BLOCK)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def _block(self, symbols: NDArray[np.uint8], skip: int) -> NDArray[np.float64]:
        size = len(symbols) - skip
        probability = np.full(size, 1 / SYMBOLS)
        for length, order in enumerate(self._orders, start=1):
            # The first bytes of a text have shorter histories than this order asks for.
            first = max(0, length - 1 - skip)
            if first >= size:
                break
            grams = _grams(symbols[skip + first - length + 1 :], length)
            probability[first:] = _interpolate(order, grams, probability[first:])
        return probability


def bits(model: NGram, text: bytes) -> float:
    """Bits to code every byte of ``text`` but the first."""
    return float(-np.log2(model.probabilities(text)).sum())


def _grams(symbols: NDArray[np.uint8], length: int) -> _Keys:
    """Returns every window of ``length`` bytes as a big-endian integer."""
    count = len(symbols) - length + 1
    keys = np.zeros(count, np.uint64)
    for offset in range(length):
        keys <<= np.uint64(8)
        keys |= symbols[offset : offset + count]
    return keys


def _mask(length: int) -> np.uint64:
    return np.uint64((1 << 8 * length) - 1)


def _order(grams: _Keys, counts: NDArray[np.int64]) -> _Order:
    contexts, starts, types = np.unique(grams >> np.uint64(8), return_index=True, return_counts=True)
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    return _Order(
        grams=grams,
        counts=counts,
        contexts=contexts,
        context_counts=np.add.reduceat(counts, starts),
        context_types=types,
        # n1 / (n1 + 2 n2) of Ney, Essen and Kneser (1994); one more of each keeps it inside (0, 1) for any text.
        discount=(once + 1) / (once + 2 * twice + 2),
    )


def _interpolate(order: _Order, grams: _Keys, lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """``max(c - D, 0) / c(context) + D types(context) / c(context) * lower``; ``lower`` where the context is new."""
    # Sorted questions walk through the tables in order, which is several times faster than jumping about in them.
    question, inverse = np.unique(grams, return_inverse=True)
    counts = _look_up(order.grams, order.counts, question)
    context = question >> np.uint64(8)
    totals = _look_up(order.contexts, order.context_counts, context)
    types = _look_up(order.contexts, order.context_types, context)
    seen = np.maximum(totals, 1)
    kept = (np.maximum(counts - order.discount, 0) / seen)[inverse]
    passed_on = np.where(totals > 0, order.discount * types / seen, 1.0)[inverse]
    result: NDArray[np.float64] = kept + passed_on * lower
    return result


def _look_up(keys: _Keys, values: NDArray[np.int64], wanted: _Keys) -> NDArray[np.int64]:
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    counts: NDArray[np.int64] = np.where(keys[places] == wanted, values[places], 0)
    return counts
