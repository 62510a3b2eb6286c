"""Pairs of answers in sequences: the chat with the better answer, then the one with the worse; and tasks of these.

Shape legend: ``batch`` (sequences), ``seq`` (tokens of one sequence).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import PREFERENCES, TokenDataset, TokenSplit
from trainwright.core.errors import DataError
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.chat import Answers
from trainwright.model.tasks.packing import PackedChats, chat_places, document_range
from trainwright.model.tasks.task import Batch, Batches

NOWHERE = -1
"""The place in the split of what is no token of an answer."""
HARDEST = 20
"""Pairs that an evaluation lists, those with the highest loss."""


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
        batch = PackedChats.filled(self, [chats_of(pairs) for pairs in parts])
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
            for chat in chats_of(pairs):
                start, stop = document_range(self.split, chat)
                places[row, at : at + stop - start - 1] = np.arange(start + 1, stop)
                at += stop - start - 1
        return np.where(targets.numpy() == IGNORE, NOWHERE, places)


def chats_of(pairs: list[int]) -> list[int]:
    """Returns the chats of pairs, two and two."""
    return [chat for pair in pairs for chat in (2 * pair, 2 * pair + 1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTask(Answers):
    """What tasks of packed pairs share; each adds how pairs are packed, its loss and its metrics."""

    @property
    def unit(self) -> str:
        """Losses are averaged over pairs."""
        return "pair"

    @abstractmethod
    def places(self, split: TokenSplit, documents: int | None = None) -> NDArray[np.int64]:
        """Returns how many places of a sequence each pair of a split's first chats takes: shape ``[pairs]``."""

    @abstractmethod
    def packed(self, split: TokenSplit, **how: Any) -> PackedPairs:
        """Returns sequences of pairs, with the arguments of ``PackedChats``."""

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns a line for pairs that no sequence holds."""
        long = {
            name: count for name, split in splits.items() if (count := split.documents // 2 - len(self.fitting(split)))
        }
        if not long:
            return ()
        listed = ", ".join(f"{count:,} of {name}" for name, count in long.items())
        return (f"pairs with more tokens than train.sequence_tokens ({self.sequence_tokens}) are left out: {listed}",)

    def covered(self, split: TokenSplit, tokens: int | None) -> int:
        """Returns how many of a split's chats are measured: as of any chats, at least to the first pair that fits."""
        fitting = self.fitting(split)
        least = 2 * int(fitting[0]) + 2 if len(fitting) else 0
        return max(Answers.covered(self, split, tokens), least)

    def fitting(self, split: TokenSplit, documents: int | None = None) -> NDArray[np.int64]:
        """Returns the numbers of the pairs of a split's first chats that a sequence holds: ``[pairs]``, ascending."""
        return np.flatnonzero(self.places(split, documents) <= self.sequence_tokens)

    def batches(self, split: TokenSplit, *, batch_sequences: int, seed: int) -> Batches:
        """Returns sequences of whole pairs; every pair once an epoch.

        Raises:
            DataError: no pair of the split fits into a sequence.
        """
        return self.pairs(split, batch_sequences=batch_sequences, seed=seed)

    def pairs(
        self, split: TokenSplit, *, batch_sequences: int, seed: int = 0, documents: int | None = None
    ) -> PackedPairs:
        """Returns sequences of the pairs of a split's first chats.

        Raises:
            DataError: no pair of them fits into a sequence.
        """
        pairs = self.fitting(split, documents)
        if not len(pairs):
            raise DataError(
                "no pair of the {name} split fits into a sequence",
                seen=f"{split.documents // 2} pairs",
                expected=f"one of at most {self.sequence_tokens} places",
                fix="give more data, or raise train.sequence_tokens: a pair takes the places of both its chats",
                name=split.name,
            )
        return self.packed(
            split, sequence_tokens=self.sequence_tokens, batch_sequences=batch_sequences, seed=seed, chats=pairs
        )

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns how many pairs there are."""
        return batch["pairs"].sum()


def check_pairs(dataset: TokenDataset) -> None:
    """Checks the kind of a dataset.

    Raises:
        DataError: it holds no preferences.
    """
    if dataset.kind != PREFERENCES:
        raise DataError(
            "this dataset holds no preferences",
            where=dataset.path,
            seen=dataset.kind,
            expected=PREFERENCES,
            fix="give sources of kind: preferences",
        )


def share_better(better: NDArray[np.float64], worse: NDArray[np.float64]) -> float:
    """Returns the share of pairs whose better answer has more; a tie is half a pair."""
    return float(((better > worse) + 0.5 * (better == worse)).mean())


def hardest_pairs(
    pairs: NDArray[np.int64], losses: NDArray[np.float64], rewards: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Returns the pairs with the highest losses and both their rewards ``[pairs, 2]``, a row each."""
    order = np.argsort(-losses, kind="stable")[:HARDEST]
    return [
        {
            "pair": int(pairs[each]),
            "loss": float(losses[each]),
            "reward_chosen": float(rewards[each, 0]),
            "reward_rejected": float(rewards[each, 1]),
        }
        for each in order.tolist()
    ]
