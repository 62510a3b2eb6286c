"""Reward: a number of an answer, larger for the better of two; the head's one output at the chat's last token.

The loss of a pair is that of Bradley and Terry's model, in which ``sigmoid(reward_chosen - reward_rejected)`` is how
probable it is that somebody prefers the one to the other (Ouyang et al., 2022, arXiv 2203.02155, equation 1).

Shape legend: ``batch`` (sequences), ``seq`` (tokens of a sequence), ``width``, ``most`` (pairs of a sequence, at most).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.tasks.packing import ONE_AFTER_ANOTHER, document_range
from trainwright.model.tasks.preferences.pairs import (
    PackedPairs,
    PairTask,
    chats_of,
    check_pairs,
    hardest_pairs,
    share_better,
)
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import RewardSection

CURVE_POINTS = 100
"""Of the picture of margins, about."""


def reward(recipe: Recipe, dataset: TokenDataset) -> Reward:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset holds no preferences.
    """
    check_pairs(dataset)
    assert isinstance(recipe.task, RewardSection)
    size = recipe.train.sequence_tokens
    return Reward(sequence_tokens=size, padding=dataset.end_of_text_id, center=recipe.task.center)


def whole_places(split: TokenSplit, documents: int | None = None) -> NDArray[np.int64]:
    """Returns how many tokens both chats of each pair of a split's first chats have: shape ``[pairs]``."""
    sizes = np.diff(split.document_ends[:documents].astype(np.int64), prepend=0)
    return sizes[: len(sizes) // 2 * 2].reshape(-1, 2).sum(axis=1)


def bradley_terry(rewards: Float[Tensor, "*pairs 2"], *, center: float = 0.0) -> Float[Tensor, "*pairs"]:
    """Returns of each pair ``-log sigmoid(r_chosen - r_rejected) + center (r_chosen + r_rejected)^2``, in nats.

    The second term (Eisenstein et al., 2023, arXiv 2312.09244, section 2) keeps rewards around zero, for a pair says
    nothing of their sum.

    Args:
        rewards: of both answers, the better one first.
        center: weight of the second term.
    """
    chosen, rejected = rewards[..., 0], rewards[..., 1]
    return -F.logsigmoid(chosen - rejected) + center * (chosen + rejected).square()


@dataclass(eq=False, kw_only=True)
class ScoredPairs(PackedPairs):
    """As ``PackedPairs``, of chats that are read whole.

    Args:
        padding: the token between documents. Where a chat ends with it, its reward stands at the token before, as
            transformers' networks read it, for whom this token is padding.
    """

    padding: int

    def places_of(self, chats: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns how many places each of these pairs takes."""
        return whole_places(self.split)[chats]

    @cached_property
    def _most(self) -> int:
        """Pairs that a sequence holds at most."""
        return self.sequence_tokens // int(self.places_of(self.chats).min())

    def filled(self, parts: list[list[int]]) -> dict[str, Tensor]:
        """Returns sequences of these pairs.

        ``tokens`` and ``documents`` are ``[batch, seq]``, ``pairs`` ``[batch]`` says how many a sequence has, ``ends``
        ``[batch, most, 2]`` where the rewards of each stand, 0 behind the last one.
        """
        most = self._most
        shape = (len(parts), self.sequence_tokens)
        tokens, documents = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        ends = np.zeros((len(parts), 2 * most), np.int64)
        for row, pairs in enumerate(parts):
            at = 0
            for number, chat in enumerate(chats_of(pairs)):
                ids = self.split.read(*document_range(self.split, chat)).astype(np.int64)
                here = slice(at, at + len(ids))
                tokens[row, here], documents[row, here] = ids, number
                ends[row, number] = at + np.flatnonzero(ids != self.padding).max(initial=0)
                at = here.stop
            documents[row, at:] = 2 * len(pairs)
        counts = np.array([len(pairs) for pairs in parts], np.int64)
        made = {"tokens": tokens, "documents": documents, "pairs": counts, "ends": ends.reshape(-1, most, 2)}
        return {name: torch.from_numpy(values) for name, values in made.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward(PairTask):
    """``bradley_terry`` of each pair; ``padding`` is the token between documents."""

    padding: int
    center: float = 0.0

    def places(self, split: TokenSplit, documents: int | None = None) -> NDArray[np.int64]:
        """Returns the tokens of both chats."""
        return whole_places(split, documents)

    def packed(self, split: TokenSplit, **how: Any) -> ScoredPairs:
        """Returns sequences of pairs with the places of their rewards."""
        return ScoredPairs(split=split, padding=self.padding, **how)

    def rewards(
        self, network: Network, hidden: Float[Tensor, "batch seq width"], ends: Int[Tensor, "batch most 2"]
    ) -> Float[Tensor, "batch most 2"]:
        """Returns the head's output at these places, multiplied in fp32 at least: what counts is how two differ."""
        rows = torch.arange(hidden.shape[0], device=hidden.device)
        read = hidden[rows[:, None], ends.flatten(1)]
        logits = network.logits(read.to(torch.promote_types(read.dtype, torch.float32)))
        return logits.reshape(ends.shape)

    def loss(self, network: Network, hidden: Float[Tensor, "batch seq width"], inputs: Batch) -> Loss:
        """Returns the summed loss of the pairs, and how many there are."""
        losses = bradley_terry(self.rewards(network, hidden, inputs["ends"]), center=self.center)
        there = torch.arange(losses.shape[1], device=losses.device) < inputs["pairs"].unsqueeze(1)
        return torch.where(there, losses, 0).sum(), self.weight(inputs)

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss, and how often and by how much the better answer has the larger reward."""
        documents = self.covered(split, options.tokens)
        source = self.pairs(split, batch_sequences=options.batch_sequences, documents=documents)
        rewards = self.measure(network, source, options)
        losses = bradley_terry(torch.from_numpy(rewards), center=self.center).numpy()
        chosen, rejected = rewards.T
        metrics = {
            "loss": Metric(value=float(losses.mean()), unit="nats/pair"),
            "accuracy": Metric(value=share_better(chosen, rejected)),
            "margin": Metric(value=float((chosen - rejected).mean()), unit="nats"),
            "reward_chosen": Metric(value=float(chosen.mean()), unit="nats"),
            "reward_rejected": Metric(value=float(rejected.mean()), unit="nats"),
        }
        sizes = np.diff(split.document_ends.astype(np.int64), prepend=0)[: split.documents // 2 * 2].reshape(-1, 2)
        record = {
            "left_out_pairs": documents // 2 - len(losses),
            "longer_chosen": share_better(*sizes[source.chats].astype(np.float64).T),
        }
        details: dict[str, Any] = {}
        if options.detailed:
            details["hardest_pairs"] = hardest_pairs(source.chats, losses, rewards)
            details["margins"] = margin_curve(chosen - rejected)
        return Evaluation(count=len(losses), metrics=metrics, record=record, details=details)

    def measure(self, network: Network, source: PackedPairs, options: EvaluationOptions) -> NDArray[np.float64]:
        """Returns the rewards of each pair of a source: shape ``[pairs, 2]``."""
        packing, rewards = source.packing(ONE_AFTER_ANOTHER), np.zeros((source.split.documents // 2, 2))
        size, training = min(source.batch_sequences, packing.sequences), network.training
        network.eval()
        try:
            for start in range(0, packing.sequences, size):
                stop = min(start + size, packing.sequences)
                parts = [packing.of(number) for number in range(start, stop)]
                given = self._given(network, source.filled([*parts, *([] for _ in range(start + size - stop))]))
                for row, pairs in enumerate(parts):
                    rewards[pairs] = given[row, : len(pairs)]
                if options.progress is not None:
                    options.progress(int(packing.ends[stop - 1]), len(source.chats))
        finally:
            network.train(training)
        return rewards[source.chats]

    @torch.no_grad()  # buffers that FSDP makes in a first pass in inference mode are of no use to training
    def _given(self, network: Network, batch: Batch) -> NDArray[np.float64]:
        here = self.inputs(network, {name: tensor.to(network.device) for name, tensor in batch.items()})
        return self.rewards(network, self.hidden(network, here), here["ends"]).double().cpu().numpy()


def margin_curve(margins: NDArray[np.float64]) -> dict[str, Any]:
    """Returns the share of pairs over the margin that they have at most: at 0 those whose order is wrong."""
    ascending = np.sort(margins)
    every = np.unique(np.linspace(0, len(ascending) - 1, CURVE_POINTS).round().astype(np.int64))
    return {
        "title": "Margins of pairs: left of 0 the worse answer has the larger reward",
        "x": "margin",
        "y": "share",
        "x_title": "reward of the better answer less that of the worse",
        "y_title": "share of pairs with this margin at most",
        "rows": [{"margin": float(ascending[n]), "share": (int(n) + 1) / len(ascending)} for n in every],
    }
