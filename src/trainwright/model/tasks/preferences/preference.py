"""Preference: the better of two answers becomes likelier than the worse, by DPO or ORPO, on pairs that are packed.

Shape legend: ``batch`` (sequences), ``seq`` (tokens of a sequence), ``width``, ``pairs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.model.losses import IGNORE, Loss
from trainwright.model.network import Network
from trainwright.model.tasks.packing import ONE_AFTER_ANOTHER
from trainwright.model.tasks.preferences.losses import by_answer, dpo, loss_of_tokens, orpo
from trainwright.model.tasks.preferences.pairs import (
    NOWHERE,
    PackedPairs,
    PairTask,
    check_pairs,
    hardest_pairs,
    pair_places,
    share_better,
)
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric, References
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import PreferenceSection


def preference(recipe: Recipe, dataset: TokenDataset) -> Preference:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset holds no preferences.
    """
    check_pairs(dataset)
    assert isinstance(recipe.task, PreferenceSection)
    return Preference(sequence_tokens=recipe.train.sequence_tokens, how=recipe.task)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preference(PairTask):
    """The loss ``how`` of each pair, of the tokens of its two answers alone.

    ``references``: by split what the first network says of each token; None before it was asked, and where nothing
    needs it.
    """

    how: PreferenceSection
    references: References | None = None

    @property
    def refers(self) -> bool:
        """Returns whether it compares the network with the one that training began with."""
        return self.how.loss == "dpo"

    def referring(self, references: References) -> Preference:
        """Returns the task with what that network says."""
        return replace(self, references=references)

    def places(self, split: TokenSplit, documents: int | None = None) -> NDArray[np.int64]:
        """Returns the places of both chats, all of whose tokens but the last are inputs."""
        return pair_places(split, documents)

    def packed(self, split: TokenSplit, **how: Any) -> PackedPairs:
        """Returns sequences of pairs, with what the reference says of them."""
        reference = None if self.references is None else self.references[split.name]
        return PackedPairs(split=split, reference=reference, **how)

    def loss(self, network: Network, hidden: Float[Tensor, "batch seq width"], inputs: Batch) -> Loss:
        """Returns the summed loss of the pairs."""
        judge = partial(self._judged, inputs=inputs)
        return loss_of_tokens(network, hidden.flatten(0, 1), inputs["targets"].flatten(), judge), self.weight(inputs)

    def _judged(self, costs: Float[Tensor, " rows"], inputs: Batch) -> Float[Tensor, ""]:
        """Returns the summed loss of what tokens cost."""
        targets, documents = inputs["targets"], inputs["documents"]
        logps = -costs.view(targets.shape)
        if self.refers:
            logps = logps - inputs["reference"].to(logps.dtype)
        counts = by_answer((targets != IGNORE).to(logps.dtype), documents)
        losses = self._of_pairs(by_answer(logps, documents), counts)
        there = torch.arange(losses.shape[1], device=losses.device) < inputs["pairs"].unsqueeze(1)
        return torch.where(there, losses, 0).sum()

    def _of_pairs(self, sums: Float[Tensor, "*pairs 2"], counts: Float[Tensor, "*pairs 2"]) -> Float[Tensor, "*pairs"]:
        """Returns the loss of each pair: of summed log-probabilities, or of their ratios to a reference."""
        if self.how.loss == "dpo":
            return dpo(sums, beta=self.how.beta, label_smoothing=self.how.label_smoothing)
        # Where there is no pair any probability will do, but one: its odds are infinite, and so is their gradient.
        return orpo(torch.where(counts > 0, sums / counts.clamp_min(1), -1.0), beta=self.how.beta)

    def reference_parts(
        self, network: Network, split: TokenSplit, *, batch_sequences: int, rows: Callable[[int], range | None]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], int, int]]:
        """Yields places in a split, the log-probabilities of the tokens there, and how many sequences are behind.

        Together they are all tokens of answers that training or an evaluation can ask for.

        Args:
            network: the one that training begins with; it computes without dropout.
            split: of preferences.
            batch_sequences: of a forward pass, over all ranks.
            rows: which of so many sequences are computed here; None: all. Every rank makes as many passes.
        """
        if not len(self.fitting(split)):
            return
        source = self.pairs(split, batch_sequences=batch_sequences)
        packing = source.packing(ONE_AFTER_ANOTHER)
        for start in range(0, packing.sequences, batch_sequences):
            mine = rows(batch_sequences)
            numbers = [start + row for row in (range(batch_sequences) if mine is None else mine)]
            parts = [packing.of(number) if number < packing.sequences else [] for number in numbers]
            batch = source.filled(parts)
            logps = -self.token_costs(network, batch).astype(np.float32)
            places = source.target_places(parts, batch["targets"])
            yield places[places != NOWHERE], logps[places != NOWHERE], start + batch_sequences, packing.sequences

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss, how often and by how much the better answer is preferred, and the distance to the reference."""
        measured = self.measure(network, split, options)
        losses = self._of_pairs(torch.from_numpy(measured.ratios), torch.from_numpy(measured.tokens)).numpy()
        metrics = {"loss": Metric(value=float(losses.mean()), unit="nats/pair")}
        rewards = self.how.beta * (measured.ratios if self.refers else measured.logps / measured.tokens)
        better, worse = rewards[:, 0], rewards[:, 1]
        metrics["rewards/accuracies"] = Metric(value=share_better(better, worse))
        metrics["rewards/margins"] = Metric(value=float((better - worse).mean()), unit="nats")
        metrics["rewards/chosen"] = Metric(value=float(better.mean()), unit="nats")
        metrics["rewards/rejected"] = Metric(value=float(worse.mean()), unit="nats")
        if self.refers:
            metrics["kl"] = Metric(value=float(measured.divergences.sum() / measured.tokens.sum()), unit="nats/token")
        covered = self.covered(split, options.tokens) // 2
        record: dict[str, Any] = {
            "left_out_pairs": covered - len(losses),
            "likelier_chosen": share_better(*measured.logps.T),
        }
        if self.refers:
            record["reference_likelier_chosen"] = share_better(*(measured.logps - measured.ratios).T)
        details = {"hardest_pairs": hardest_pairs(measured.pairs, losses, rewards)} if options.detailed else {}
        return Evaluation(count=len(losses), metrics=metrics, record=record, details=details)

    def measure(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Measured:
        """Returns what a network says of each pair that a sequence holds.

        Raises:
            DataError: there is none.
        """
        source = self.pairs(
            split, batch_sequences=options.batch_sequences, documents=self.covered(split, options.tokens)
        )
        packing, sums = source.packing(ONE_AFTER_ANOTHER), np.zeros((4, split.documents // 2, 2))
        size = min(options.batch_sequences, packing.sequences)
        for start in range(0, packing.sequences, size):
            stop = min(start + size, packing.sequences)
            parts = [packing.of(number) for number in range(start, stop)]
            batch = source.filled([*parts, *([] for _ in range(start + size - stop))])
            logps = -self.token_costs(network, batch)
            ratios = logps - (batch["reference"].double().numpy() if self.refers else 0.0)
            counts = (batch["targets"] != IGNORE).double().numpy()
            each = np.stack([logps, ratios, counts, counts * (np.exp(ratios) - 1 - ratios)])
            by_pair = by_answer(torch.from_numpy(each).flatten(0, 1), batch["documents"].repeat(4, 1)).numpy()
            by_pair = by_pair.reshape(4, size, -1, 2)
            for row, pairs in enumerate(parts):
                sums[:, pairs] = by_pair[:, row, : len(pairs)]
            if options.progress is not None:
                options.progress(int(packing.ends[stop - 1]), len(source.chats))
        logps, ratios, tokens, divergences = sums[:, source.chats]
        return Measured(pairs=source.chats, logps=logps, ratios=ratios, tokens=tokens, divergences=divergences)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Of each pair, and of both its answers: sums over the answer's tokens, all of shape ``[pairs, 2]``.

    ``logps`` are log-probabilities in nats, ``ratios`` those less the reference's (without one the same), ``tokens``
    how many. ``divergences`` estimate what the network departs from its reference: of a token with ratio r they are
    exp(r) - 1 - r, never negative, whose mean is KL(reference || network) where the reference wrote the answers
    (the estimator k3 of Schulman, "Approximating KL divergence", 2020).
    """

    pairs: NDArray[np.int64]
    logps: NDArray[np.float64]
    ratios: NDArray[np.float64]
    tokens: NDArray[np.float64]
    divergences: NDArray[np.float64]
