"""Chats of many lengths in sequences of one length: first fit, in an order that seed and epoch decide.

Shape legend: ``batch`` (sequences), ``seq`` (tokens of one sequence).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import TokenSplit
from trainwright.model.losses import IGNORE
from trainwright.runtime.rng import derive, permute

ONE_AFTER_ANOTHER = -1
"""The epoch of an evaluation: chats in their own order."""


def first_fit(sizes: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """Returns for each size, in turn, the first bin that still has room for it: shape ``[sizes]``, bins from 0.

    Every size is at most ``capacity``. A tree of the bins' room finds each in O(log n).
    """
    leaves = 1 << max(len(sizes) - 1, 0).bit_length()
    room = [capacity] * (2 * leaves)
    places = np.empty(len(sizes), np.int64)
    for number, size in enumerate(sizes.tolist()):
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < size:
                node += 1
        places[number] = node - leaves
        room[node] -= size
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return places


@dataclass(frozen=True, eq=False)
class Packing:
    """Which chats lie in which sequence; ``chats`` are sorted by sequence, whose ranges ``ends`` divides."""

    chats: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def sequences(self) -> int:
        """Returns how many sequences there are."""
        return len(self.ends)

    def of(self, sequence: int) -> list[int]:
        """Returns the chats of a sequence, in the order in which they lie there."""
        start = int(self.ends[sequence - 1]) if sequence else 0
        return [int(chat) for chat in self.chats[start : int(self.ends[sequence])]]


def pack(chats: NDArray[np.int64], sizes: NDArray[np.int64], capacity: int) -> Packing:
    """Returns chats, of these sizes and in this order, packed into sequences of ``capacity`` places."""
    places = first_fit(sizes, capacity)
    order = np.argsort(places, kind="stable")
    return Packing(chats[order], np.cumsum(np.bincount(places)))


def chat_places(split: TokenSplit, documents: int | None = None) -> NDArray[np.int64]:
    """Returns how many places each of a split's first chats takes, all but one for a token: shape ``[chats]``."""
    return np.asarray(np.diff(split.document_ends[:documents].astype(np.int64), prepend=0) - 1, np.int64)


def document_range(split: TokenSplit, number: int) -> tuple[int, int]:
    """Returns where a document begins in its split, and where it ends."""
    return int(split.document_ends[number - 1]) if number else 0, int(split.document_ends[number])


@dataclass(eq=False, kw_only=True)
class PackedChats:
    """Sequences of chats as a function of the step; each epoch has every chat once, packed in an order of its own.

    A chat of n tokens takes n - 1 places: each but the last is an input, each but the first a target.

    Args:
        split: of chats.
        sequence_tokens: places of a sequence.
        batch_sequences: sequences of a batch.
        seed: decides the order.
        chats: numbers of the chats to take; none is longer than a sequence.
    """

    split: TokenSplit
    sequence_tokens: int
    batch_sequences: int
    seed: int
    chats: NDArray[np.int64]
    _firsts: list[int] = field(default_factory=lambda: [0])
    """Of each epoch that is known the number of its first sequence, and of the one after them."""
    _packed: dict[int, Packing] = field(default_factory=dict)

    def packing(self, epoch: int) -> Packing:
        """Returns the sequences of an epoch; ``ONE_AFTER_ANOTHER`` leaves chats in their own order."""
        if epoch not in self._packed:
            order = self.chats
            if epoch != ONE_AFTER_ANOTHER:
                count = len(self.chats)
                order = self.chats[permute(np.arange(count), count, derive(self.seed, epoch))]
            packing = pack(order, self.places_of(order), self.sequence_tokens)
            for old in [each for each in self._packed if each < epoch - 1]:
                self._packed.pop(old, None)  # a batch lies in two epochs at most
            self._packed[epoch] = packing
        return self._packed[epoch]

    def places_of(self, chats: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns how many places each of these takes: shape ``[chats]``."""
        return chat_places(self.split)[chats]

    def batch(self, step: int, rows: range | None = None) -> dict[str, Tensor]:
        """Returns ``tokens``, ``targets`` and ``documents``, each ``[batch, seq]``; as ``filled`` gives them."""
        read = range(self.batch_sequences) if rows is None else rows
        parts = [self._sequence(step * self.batch_sequences + row) for row in read]
        return self.filled(parts)

    def filled(self, parts: list[list[int]]) -> dict[str, Tensor]:
        """Returns sequences of these chats: ``tokens``, ``targets`` and ``documents``, each ``[batch, seq]``.

        A target that is no answer counts for nothing. ``documents`` numbers the chats of a sequence; what is left of it
        is one more, of zeros.
        """
        shape = (len(parts), self.sequence_tokens)
        tokens, documents = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        targets = np.full(shape, IGNORE, np.int64)
        for row, chats in enumerate(parts):
            at = 0
            for number, chat in enumerate(chats):
                start, stop = document_range(self.split, chat)
                ids = self.split.read(start, stop).astype(np.int64)
                here = slice(at, at + len(ids) - 1)
                tokens[row, here], documents[row, here] = ids[:-1], number
                targets[row, here] = np.where(self.split.answers(start, stop), ids, IGNORE)[1:]
                at = here.stop
            documents[row, at:] = len(chats)
        made = (("tokens", tokens), ("targets", targets), ("documents", documents))
        return {name: torch.from_numpy(values) for name, values in made}

    def _sequence(self, number: int) -> list[int]:
        """Returns the chats of a sequence that is counted from the first one of the run."""
        while self._firsts[-1] <= number:
            self._firsts.append(self._firsts[-1] + self.packing(len(self._firsts) - 1).sequences)
        epoch = int(np.searchsorted(self._firsts, number, side="right")) - 1
        packing = self.packing(epoch)
        place = permute(np.array([number - self._firsts[epoch]]), packing.sequences, derive(self.seed, epoch, 1))
        return packing.of(int(place[0]))
