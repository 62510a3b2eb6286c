"""Chat fine-tuning: the loss on answers alone; chats are packed, and no token sees another chat.

Shape legend: ``batch`` (sequences), ``seq`` (tokens of a sequence), ``width``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import CHATS, TokenDataset, TokenSplit
from trainwright.core.errors import DataError
from trainwright.model.attention import document_positions
from trainwright.model.losses import IGNORE
from trainwright.model.network import Network
from trainwright.model.tasks.evaluate_loss import covered_tokens
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.packing import ONE_AFTER_ANOTHER, PackedChats, chat_places
from trainwright.model.tasks.task import Batch, Batches, Evaluation, EvaluationOptions, Metric
from trainwright.spec.recipe import Recipe

LARGEST = 709
"""The largest number whose exponential is a float."""
WORST = 20
"""Chats that an evaluation lists, those with the highest loss."""


def chat(recipe: Recipe, dataset: TokenDataset) -> Chat:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset holds no chats.
    """
    if dataset.kind != CHATS:
        raise DataError(
            "this dataset holds no chats",
            where=dataset.path,
            seen=dataset.kind,
            expected=CHATS,
            fix="give sources of kind: chats",
        )
    return Chat(sequence_tokens=recipe.train.sequence_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatCosts:
    """What the answers of some chats cost: of each chat its number, the nats of its answers, and their tokens."""

    chats: NDArray[np.int64]
    nats: NDArray[np.float64]
    tokens: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers(NextToken):
    """What tasks of packed chats share, of whose tokens those of answers count."""

    def inputs(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """Returns the micro batch, with ``positions`` in each chat where the network looks them up."""
        inputs = dict(batch)
        if network.has_position_table:
            inputs["positions"] = document_positions(inputs["documents"])
        return inputs

    @torch.no_grad()  # buffers that FSDP makes in a first pass in inference mode are of no use to training
    def token_costs(self, network: Network, batch: Batch) -> NDArray[np.float64]:
        """Returns the cost of each target as in an evaluation, 0 where it does not count: shape ``[batch, seq]``."""
        here = self.inputs(network, {name: tensor.to(network.device) for name, tensor in batch.items()})
        training = network.training
        network.eval()
        try:
            hidden = self.hidden(network, here)
            losses = network.token_losses(hidden.flatten(0, 1), here["targets"].flatten())
        finally:
            network.train(training)
        return losses.double().cpu().numpy().reshape(batch["targets"].shape)

    def covered(self, split: TokenSplit, tokens: int | None) -> int:
        """Returns how many of a split's chats are measured: all, or the first ones with about so many tokens."""
        return int(np.searchsorted(split.document_ends, np.uint64(covered_tokens(split, tokens)), side="right"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat(Answers):
    """Cross-entropy of each token of an answer, given its chat so far."""

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns a line for chats that no sequence holds."""
        long = {name: count for name, split in splits.items() if (count := split.documents - len(self._fitting(split)))}
        if not long:
            return ()
        listed = ", ".join(f"{count:,} of {name}" for name, count in long.items())
        return (f"chats longer than train.sequence_tokens ({self.sequence_tokens}) are left out: {listed}",)

    def _fitting(self, split: TokenSplit, documents: int | None = None) -> NDArray[np.int64]:
        """Returns the numbers of a split's first chats that a sequence holds: shape ``[chats]``, ascending."""
        return np.flatnonzero(chat_places(split, documents) <= self.sequence_tokens)

    def batches(self, split: TokenSplit, *, batch_sequences: int, seed: int) -> Batches:
        """Returns sequences of whole chats; every chat once an epoch.

        Raises:
            DataError: no chat of the split fits into a sequence.
        """
        return self._packed(split, batch_sequences=batch_sequences, seed=seed, documents=None)

    def _packed(self, split: TokenSplit, *, batch_sequences: int, seed: int, documents: int | None) -> PackedChats:
        chats = self._fitting(split, documents)
        if not len(chats):
            raise DataError(
                "no chat of the {name} split fits into a sequence",
                seen=f"{split.documents} chats",
                expected=f"one of at most {self.sequence_tokens + 1} tokens",
                fix="give more data, or raise train.sequence_tokens",
                name=split.name,
            )
        return PackedChats(
            split=split, sequence_tokens=self.sequence_tokens, batch_sequences=batch_sequences, seed=seed, chats=chats
        )

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns how many tokens of answers there are."""
        return (batch["targets"] != IGNORE).sum()

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss and perplexity on answers; ``details`` list the chats whose answers were the hardest."""
        costs = self.costs(network, split, options)
        nats, tokens = float(costs.nats.sum()), int(costs.tokens.sum())
        loss = nats / tokens
        metrics = {"loss": Metric(value=loss, unit="nats/token")}
        if loss < LARGEST:
            metrics["perplexity"] = Metric(value=math.exp(loss))
        left_out = self.covered(split, options.tokens) - len(costs.chats)
        record = {"chats": len(costs.chats), "left_out_chats": left_out}
        details = {"hardest_chats": _hardest(costs)} if options.detailed else {}
        return Evaluation(count=tokens, metrics=metrics, record=record, details=details)

    def costs(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> ChatCosts:
        """Returns what the answers of each chat cost, of those that a sequence holds.

        Raises:
            DataError: there is none.
        """
        documents = self.covered(split, options.tokens)
        source = self._packed(split, batch_sequences=options.batch_sequences, seed=0, documents=documents)
        nats, tokens = np.zeros(split.documents), np.zeros(split.documents, np.int64)
        for chats, batch, done, total in _in_order(source):
            losses = self.token_costs(network, batch)
            counts = (batch["targets"] != IGNORE).numpy()
            documents_of = batch["documents"].numpy()
            for row, numbers in enumerate(chats):
                owners = np.array([*numbers, -1])[documents_of[row]][counts[row]]
                np.add.at(nats, owners, losses[row][counts[row]])
                np.add.at(tokens, owners, 1)
            if options.progress is not None:
                options.progress(done, total)
        return ChatCosts(chats=source.chats, nats=nats[source.chats], tokens=tokens[source.chats])


def _in_order(source: PackedChats) -> Iterator[tuple[list[list[int]], dict[str, Tensor], int, int]]:
    """Yields the chats of each batch, the batch, and how many tokens of how many are behind it.

    All batches have one shape: the last one is filled up with empty sequences.
    """
    packing = source.packing(ONE_AFTER_ANOTHER)
    size = min(source.batch_sequences, packing.sequences)
    for start in range(0, packing.sequences, size):
        stop = min(start + size, packing.sequences)
        chats = [packing.of(number) for number in range(start, stop)]
        batch = source.filled([*chats, *([] for _ in range(size - len(chats)))])
        yield chats, batch, stop * source.sequence_tokens, packing.sequences * source.sequence_tokens


def _hardest(costs: ChatCosts) -> list[dict[str, Any]]:
    mean = costs.nats / np.maximum(costs.tokens, 1)
    order = np.argsort(-mean, kind="stable")[:WORST]
    return [
        {"chat": int(costs.chats[each]), "answer_tokens": int(costs.tokens[each]), "loss": float(mean[each])}
        for each in order.tolist()
    ]
