"""Filling gaps: tokens that are hidden from an encoder are told from those around them (Devlin et al., 2018).

Shape legend: ``batch`` (sequences), ``seq`` (tokens of a sequence), ``width``, ``rows`` (hidden tokens).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.errors import DataError
from trainwright.model.attention import document_ids, document_positions
from trainwright.model.conventions import read_tokenizer, special_ids
from trainwright.model.losses import IGNORE, Loss
from trainwright.model.network import Network
from trainwright.model.tasks.evaluate_loss import covered_tokens
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.model.tasks.windows import Windows
from trainwright.planner.counts.pieces import chunk_tokens
from trainwright.runtime.rng import derive, uniforms
from trainwright.spec.recipe import Recipe

SHARE, AS_MASK, AS_ANY = 0.15, 0.8, 0.1
"""Of all tokens those that are told; of these as the mask, and as any token; the rest stay (BERT, section 3.1)."""
MASKS = ("[MASK]", "<mask>")
"""What tokenizers of BERT and RoBERTa call the mask."""
NO_TEXT = "ÿ"
"""Byte 255 in the letters of byte-level tokenizers: no UTF-8 text has it, so that it can stand for a gap."""
_PURPOSE, _EVALUATION = 0x6D61736B, 0x6576616C
"""Keep keys of gaps apart from other numbers of the same seed; an evaluation's are the same for every seed."""


def masked(recipe: Recipe, dataset: TokenDataset) -> Masked:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the tokenizer has no token that can stand for a gap.
    """
    tokenizer = read_tokenizer(dataset.tokenizer_path)
    names = (*MASKS, NO_TEXT)
    mask = next((known for name in names if (known := tokenizer.token_to_id(name)) is not None), None)
    if mask is None:
        raise DataError(
            "the tokenizer has no token for a gap",
            where=dataset.tokenizer_path,
            expected=f"one of {', '.join(MASKS)}, or tokens of bytes",
            fix="take a tokenizer that was made for masked language models",
        )
    gaps = Gaps(mask=mask, vocabulary=dataset.vocabulary, never=(dataset.end_of_text_id, *special_ids(tokenizer)))
    apart = recipe.train.document_masking
    return Masked(
        sequence_tokens=recipe.train.sequence_tokens,
        gaps=gaps,
        end_of_text=dataset.end_of_text_id if apart else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaps:
    """Which tokens are told, and what stands in their place: a function of a key for each sequence.

    ``mask`` stands for a gap; random tokens are any of the ``vocabulary``; special tokens are ``never`` told.
    """

    mask: int
    vocabulary: int
    never: tuple[int, ...]

    def of(self, tokens: NDArray[np.int64], keys: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns inputs and targets ``[batch, seq]`` of these tokens; where nothing is told, ``IGNORE``."""
        batch, seq = tokens.shape
        chosen, how, other = uniforms(np.array(keys, np.uint64), 3 * seq).reshape(batch, 3, seq).transpose(1, 0, 2)
        told = (chosen < SHARE) & ~np.isin(tokens, self.never)
        random = np.where(how < AS_MASK + AS_ANY, (other * self.vocabulary).astype(np.int64), tokens)
        shown = np.where(how < AS_MASK, self.mask, random)
        return np.where(told, shown, tokens), np.where(told, tokens, IGNORE)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedWindows:
    """Windows of a token stream with their gaps, each a function of seed, step and the row in the whole batch."""

    windows: Windows
    gaps: Gaps
    end_of_text: int | None
    seed: int

    def batch(self, step: int, rows: range | None = None) -> dict[str, Tensor]:
        """Returns ``tokens`` and ``targets`` ``[batch, seq]``, and with masking of documents their ``documents``."""
        tokens = self.windows.batch(step, rows)["tokens"][:, :-1]
        here = range(self.windows.batch_sequences) if rows is None else rows
        inputs, targets = self.gaps.of(tokens.numpy(), [derive(self.seed, _PURPOSE, step, row) for row in here])
        batch = {"tokens": torch.from_numpy(inputs), "targets": torch.from_numpy(targets)}
        return batch if self.end_of_text is None else {**batch, "documents": document_ids(tokens, self.end_of_text)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Masked:
    """Cross-entropy of the hidden tokens of a window, given the others.

    ``end_of_text``: no token attends across this one, and positions start anew behind it; None joins documents.
    """

    sequence_tokens: int
    gaps: Gaps
    end_of_text: int | None = None

    @property
    def unit(self) -> str:
        """Losses are averaged over hidden tokens."""
        return "token"

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns nothing: every token of a split is read."""
        return ()

    def batches(self, split: TokenSplit, *, batch_sequences: int, seed: int) -> MaskedWindows:
        """Returns windows of ``sequence_tokens`` with gaps of their own in every step."""
        windows = Windows(split, sequence_tokens=self.sequence_tokens, batch_sequences=batch_sequences, seed=seed)
        return MaskedWindows(windows=windows, gaps=self.gaps, end_of_text=self.end_of_text, seed=seed)

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns how many tokens are hidden."""
        return (batch["targets"] != IGNORE).sum()

    def inputs(self, network: Network, batch: Batch) -> Batch:
        """Returns the micro batch, with ``positions`` where documents are kept apart and a table says them."""
        if "documents" in batch and network.has_position_table:
            return {**batch, "positions": document_positions(batch["documents"])}
        return batch

    def hidden(self, network: Network, inputs: Batch) -> Float[Tensor, "batch seq width"]:
        """Returns the hidden state of every token."""
        known = {name: inputs[name] for name in ("positions", "documents", "samples") if name in inputs}
        hidden: Tensor = network(inputs["tokens"], **known)
        return hidden

    def loss(self, network: Network, hidden: Float[Tensor, "batch seq width"], inputs: Batch) -> Loss:
        """Returns the summed cross-entropy of the hidden tokens."""
        return network.head_loss(hidden.flatten(0, 1), inputs["targets"].flatten())

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss and accuracy over gaps that depend on a window's place in the split alone.

        Raises:
            DataError: no token of the split is hidden.
        """
        nats, right, count = 0.0, 0, 0
        training = network.training
        network.eval()
        try:
            for batch, done, total in self.in_order(split, options.batch_sequences, options.tokens):
                part = self._measure(network, batch)
                nats, right, count = nats + part[0], right + part[1], count + part[2]
                if options.progress is not None:
                    options.progress(done, total)
        finally:
            network.train(training)
        if not count:
            fix = "give it more documents (data.sources, data.split)"
            raise DataError("the {name} split is too short to measure", seen="no gap", fix=fix, name=split.name)
        loss = nats / count
        metrics = {"loss": Metric(value=loss, unit="nats/token"), "accuracy": Metric(value=right / count)}
        if loss < math.log(1e300):
            metrics["perplexity"] = Metric(value=math.exp(loss))
        return Evaluation(count=count, metrics=metrics)

    def in_order(self, split: TokenSplit, batch_sequences: int, tokens: int | None) -> Iterator[tuple[Batch, int, int]]:
        """Yields windows that do not overlap, with how many of how many tokens are in them so far."""
        covered, seq = covered_tokens(split, tokens), self.sequence_tokens
        for start in range(0, covered, batch_sequences * seq):
            stop = min(start + batch_sequences * seq, covered)
            count = -(-(stop - start) // seq)
            stream, documents = np.zeros(count * seq, np.int64), np.full(count * seq, -1, np.int64)
            stream[: stop - start] = split.read(start, stop)
            # What fills the last window up is a document of its own, of which nothing is told.
            apart = self.end_of_text is not None
            documents[: stop - start] = split.document_ids(start, stop) if apart else 0
            first = start // seq
            keys = [derive(_EVALUATION, _PURPOSE, first + row) for row in range(count)]
            inputs, targets = self.gaps.of(stream.reshape(count, seq), keys)
            parts = (
                inputs,
                np.where(documents.reshape(count, seq) < 0, IGNORE, targets),
                documents.reshape(count, seq),
            )
            yield (
                dict(zip(("tokens", "targets", "documents"), map(torch.from_numpy, parts), strict=True)),
                stop,
                covered,
            )

    @torch.inference_mode()
    def _measure(self, network: Network, batch: Batch) -> tuple[float, int, int]:
        """Returns of a batch's hidden tokens the summed loss, how many are told right, and how many there are."""
        here = self.inputs(network, {name: tensor.to(network.device) for name, tensor in batch.items()})
        chosen = here["targets"].flatten() != IGNORE
        hidden, targets = self.hidden(network, here).flatten(0, 1)[chosen], here["targets"].flatten()[chosen]
        size, nats, right = chunk_tokens(network.spec.vocabulary), 0.0, 0
        for rows, told in zip(hidden.split(size), targets.split(size), strict=True):
            logits = network.logits(rows)
            nats += float(F.cross_entropy(logits, told, reduction="sum"))
            right += int((logits.argmax(dim=-1) == told).sum())
        return nats, right, len(targets)
