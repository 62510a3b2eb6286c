"""Predicting the next token of a text, from windows of a token stream.

Shape legend: ``batch`` (sequences), ``seq`` (tokens of a sequence), ``width``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.registry import load
from trainwright.model.attention import document_ids, document_positions
from trainwright.model.losses import IGNORE, Loss
from trainwright.model.network import Network
from trainwright.model.tasks.evaluate_loss import summarise, token_nats
from trainwright.model.tasks.task import Batch, Batches, Evaluation, EvaluationOptions, Metric
from trainwright.model.tasks.windows import Windows
from trainwright.spec.recipe import Recipe

BREAKDOWN = "trainwright.model.tasks.breakdown"
"""Tables of an evaluation, which a validation has none of."""
CONTEXT_CURVE = {
    "title": "What context is worth",
    "x": "from_tokens",
    "x_title": "tokens seen before in the window, at least",
    "y": "loss",
    "y_title": "nats per token",
}


def next_token(recipe: Recipe, dataset: TokenDataset) -> NextToken:
    """Returns the task as a recipe asks for it."""
    masked = recipe.train.document_masking
    return NextToken(
        sequence_tokens=recipe.train.sequence_tokens, end_of_text=dataset.end_of_text_id if masked else None
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NextToken:
    """Cross-entropy of each token after the first of a window, given those before it.

    ``end_of_text``: no token attends across this one, and positions start anew behind it; None joins documents.
    """

    sequence_tokens: int
    end_of_text: int | None = None

    @property
    def unit(self) -> str:
        """Losses are averaged over predicted tokens."""
        return "token"

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns nothing: every token of a split is read."""
        return ()

    def batches(self, split: TokenSplit, *, batch_sequences: int, seed: int) -> Batches:
        """Returns windows of ``sequence_tokens`` and one token more, the last target."""
        return Windows(split, sequence_tokens=self.sequence_tokens, batch_sequences=batch_sequences, seed=seed)

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns how many tokens are predicted."""
        return (batch["tokens"][:, 1:] != IGNORE).sum()

    def inputs(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """Returns ``tokens``, ``targets``, and with masking ``documents`` and ``positions``: each ``[batch, seq]``."""
        tokens, targets = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
        inputs = {**batch, "tokens": tokens.clamp_min(0), "targets": targets}
        if self.end_of_text is not None:
            inputs["documents"] = document_ids(tokens, self.end_of_text)
            if network.has_position_table:
                inputs["positions"] = document_positions(inputs["documents"])
        return inputs

    def part(self, inputs: Batch, places: Int[Tensor, " part"]) -> Batch:
        """Returns what a rank needs that has these tokens of every sequence; ``documents`` stay whole."""
        here = {name: inputs[name][:, places] for name in ("tokens", "targets", "positions") if name in inputs}
        return {**inputs, **here, "places": places}

    def hidden(self, network: Network, inputs: Batch) -> Float[Tensor, "batch seq width"]:
        """Returns the hidden state of every token."""
        known = {name: inputs[name] for name in ("positions", "documents", "samples", "places") if name in inputs}
        hidden: Tensor = network(inputs["tokens"], **known)
        return hidden

    def loss(self, network: Network, hidden: Float[Tensor, "batch seq width"], inputs: Batch) -> Loss:
        """Returns the summed cross-entropy of the targets."""
        return network.head_loss(hidden.flatten(0, 1), inputs["targets"].flatten())

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss per token and bits per byte of text; ``details`` say which documents and contexts they are."""
        costs = token_nats(
            network,
            split,
            sequence_tokens=self.sequence_tokens,
            batch_sequences=options.batch_sequences,
            tokens=options.tokens,
            document_masking=self.end_of_text is not None,
            device=network.device,
            done=options.progress,
            share=options.share,
        )
        result = summarise(split, costs)
        details: dict[str, Any] = {}
        if options.detailed:
            rows = load(f"{BREAKDOWN}:by_context", kind="table")(costs, sequence_tokens=self.sequence_tokens)
            details["by_context"] = CONTEXT_CURVE | {"rows": rows}
            by_size = load(f"{BREAKDOWN}:by_document_size", kind="table")
            details["by_document_size"] = by_size(split, costs, documents=result.documents)
        metrics = {
            "loss": Metric(value=result.loss, unit="nats/token"),
            "bits_per_byte": Metric(value=result.bits_per_byte, unit="bits/byte"),
        }
        if math.isfinite(result.perplexity):
            metrics["perplexity"] = Metric(value=result.perplexity)
        record = {"documents": result.documents, "text_bytes": result.text_bytes}
        return Evaluation(count=result.tokens, metrics=metrics, record=record, details=details)
