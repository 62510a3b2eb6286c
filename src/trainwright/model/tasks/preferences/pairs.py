"""Pairs of answers in sequences: the chat with the better answer, then the one with the worse.

Shape legend: ``batch`` (sequences), ``seq`` (tokens of one sequence).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import TokenSplit
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.packing import PackedChats, chat_places, document_range

NOWHERE = -1
"""The place in the split of what is no token of an answer."""


def pair_places(split: TokenSplit, documents: int | None = None) -> NDArray[np.int64]:
    """Returns how many places of a sequence each pair of a split's first chats takes: shape ``[pairs]``."""
    places = chat_places(split, documents)
    return places[: len(places) // 2 * 2].reshape(-1, 2).sum(axis=1)


@dataclass(eq=False, kw_only=True)
class PackedPairs(PackedChats):
    """As ``PackedChats``, of which two are never apart; ``chats`` are numbers of pairs.

    Pair n of a split is its documents 2 n, the better answer, and 2 n + 1. In its sequence it is documents of such
    numbers too, so that no token of one answer sees the other.

    Args:
        reference: of each token of the split the logarithm of its probability for another network, 0 for what is no
            answer; None: batches hold none.
    """

    reference: NDArray[np.float32] | None = None

    def places_of(self, chats: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns how many places each of these pairs takes."""
        return pair_places(self.split)[chats]

    def filled(self, parts: list[list[int]]) -> dict[str, Tensor]:
        """Returns sequences of these pairs.

        Beside what chats give there is ``pairs`` ``[batch]``, how many are in a sequence, and with a reference
        ``reference`` ``[batch, seq]``, what it says of each target that counts.
        """
        batch = PackedChats.filled(self, [_chats(pairs) for pairs in parts])
        batch["pairs"] = torch.tensor([len(pairs) for pairs in parts], dtype=torch.int64)
        if self.reference is not None:
            places = self.target_places(parts, batch["targets"])
            values = np.where(places == NOWHERE, 0, self.reference[np.maximum(places, 0)])
            batch["reference"] = torch.from_numpy(values.astype(np.float32, copy=False))
        return batch

    def target_places(self, parts: list[list[int]], targets: Tensor) -> NDArray[np.int64]:
        """Returns where in the split each target that counts stands, else ``NOWHERE``: shape ``[batch, seq]``."""
        places = np.full(targets.shape, NOWHERE, np.int64)
        for row, pairs in enumerate(parts):
            at = 0
            for chat in _chats(pairs):
                start, stop = document_range(self.split, chat)
                places[row, at : at + stop - start - 1] = np.arange(start + 1, stop)
                at += stop - start - 1
        return np.where(targets.numpy() == IGNORE, NOWHERE, places)


def _chats(pairs: list[int]) -> list[int]:
    return [chat for pair in pairs for chat in (2 * pair, 2 * pair + 1)]
