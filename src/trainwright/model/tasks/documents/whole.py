"""Whole documents in sequences of their own, and what all tasks have in common that answer once for each of them.

The head reads the hidden state of a document's last token, of an encoder that of its first one, or the mean of all.

Shape legend: ``batch`` (documents), ``seq`` (tokens of a sequence), ``width``, ``outputs`` (of the head).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import LABEL_SETS, LABELLED, NUMBERS, WORDS, TokenDataset, TokenSplit
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.conventions import read_tokenizer
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.tasks.epochs import drawn
from trainwright.model.tasks.evaluate_loss import covered_tokens
from trainwright.model.tasks.task import Batch, EvaluationOptions
from trainwright.spec.recipe import Recipe

FRAME_TOKENS = 2
"""Around a document that an encoder reads: one before it, one behind it."""
TOLD = {LABELLED: "labels", LABEL_SETS: "lists of labels", NUMBERS: "numbers", WORDS: "labels of words"}
"""What documents of a kind of dataset have."""
Answers = Mapping[str, NDArray[Any]]
"""What is to be answered of documents, by its name in a batch; the first dim of each is the documents."""


def form_of(recipe: Recipe, dataset: TokenDataset, *, kind: str) -> dict[str, Any]:
    """Returns the fields of ``DocumentTask`` as a recipe and its dataset give them.

    Raises:
        DataError: the dataset is of another ``kind``; its tokenizer is missing or damaged.
        RecipeError: an encoder's sequence has no room for a document.
    """
    if dataset.kind != kind:
        raise DataError(
            "the documents of this dataset have no {answers}",
            where=dataset.path,
            seen=dataset.kind,
            expected=kind,
            answers=TOLD[kind],
        )
    encodes = recipe.model_spec(vocabulary=dataset.vocabulary).kind == "encoder"
    if encodes and recipe.train.sequence_tokens <= FRAME_TOKENS:
        raise RecipeError(
            "no token of a document has room between the first and the last of an encoder's sequence",
            where="train.sequence_tokens",
            seen=recipe.train.sequence_tokens,
            expected=f"more than {FRAME_TOKENS}",
        )
    frame = frame_of(dataset) if encodes else None
    return {"sequence_tokens": recipe.train.sequence_tokens, "padding": dataset.end_of_text_id, "frame": frame}


def frame_of(dataset: TokenDataset) -> tuple[int, int]:
    """Returns the tokens with which an encoder's sequence begins and ends.

    They are those that the dataset's tokenizer puts around every text ([CLS] and [SEP] of BERT); where it puts none,
    the token between documents stands at both ends.

    Raises:
        DataError: the tokenizer is missing or damaged.
    """
    around = read_tokenizer(dataset.tokenizer_path).encode("", add_special_tokens=True).ids
    return (around[0], around[1]) if len(around) == FRAME_TOKENS else (dataset.end_of_text_id, dataset.end_of_text_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeDocuments:
    """Documents in a counter-based random order, each cut to a sequence or padded to it on the right.

    A frame stands around each, within the sequence. No token of a document sees the padding behind it: a decoder's
    attention is causal, and an encoder's hides it.
    """

    task: DocumentTask
    split: TokenSplit
    batch_sequences: int
    seed: int = 0

    def batch(self, step: int, rows: range | None = None) -> dict[str, Tensor]:
        """Returns ``tokens`` ``[batch, seq]``, of each document its ``last`` token's place, and its answers."""
        read = range(self.batch_sequences) if rows is None else rows
        batch, documents = self.batch_sequences, self.split.documents
        return self.documents(drawn(step, read, batch=batch, documents=documents, seed=self.seed)[1])

    def documents(self, numbers: NDArray[np.int64]) -> dict[str, Tensor]:
        """Returns these documents as a batch."""
        most, frame = self.task.sequence_tokens, self.task.frame
        tokens = np.full((len(numbers), most), self.task.padding, np.int64)
        last = np.empty(len(numbers), np.int64)
        for row, number in enumerate(numbers):
            start = int(self.split.document_ends[number - 1]) if number else 0
            size = int(self.split.document_ends[number]) - start - 1  # without its end-of-text token
            if frame is None:
                size = min(max(size, 1), most)  # but for a document of no other token
                tokens[row, :size] = self.split.read(start, start + size)
                last[row] = size - 1
            else:
                size = min(size, most - FRAME_TOKENS)
                tokens[row, 0], tokens[row, size + 1] = frame
                tokens[row, 1 : size + 1] = self.split.read(start, start + size)
                last[row] = size + 1
        made = {"tokens": tokens, "last": last, **self.task.answers(self.split, numbers)}
        return {name: torch.from_numpy(part) for name, part in made.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentTask(ABC):
    """What tasks of whole documents share; each adds its answers, its loss and its metrics.

    A ``frame`` of two tokens stands around each document for an encoder, which answers at the first of them.
    """

    sequence_tokens: int
    padding: int
    frame: tuple[int, int] | None = None

    @property
    def unit(self) -> str:
        """Losses are averaged over documents."""
        return "document"

    @property
    def answers_each(self) -> int:
        """Returns how many answers a document has, each a unit of weight."""
        return 1

    @abstractmethod
    def answers(self, split: TokenSplit, numbers: NDArray[np.int64]) -> Answers:
        """Returns what is to be answered of these documents of a split."""

    @abstractmethod
    def loss(self, network: Network, hidden: Float[Tensor, "batch width"], inputs: Batch) -> Loss:
        """Returns the summed loss of the answers and its weight."""

    def units(self, split: TokenSplit, documents: int) -> int:
        """Returns how many answers a split's first documents have."""
        del split
        return documents * self.answers_each

    def cut(self, split: TokenSplit, documents: int) -> int:
        """Returns how many of a split's first documents are longer than a sequence, without their end-of-text token."""
        sizes = np.diff(split.document_ends[:documents].astype(np.int64), prepend=0) - 1
        return int((sizes > self.sequence_tokens - (0 if self.frame is None else FRAME_TOKENS)).sum())

    def cut_notes(self, splits: Mapping[str, TokenSplit]) -> list[str]:
        """Returns a line where documents are cut."""
        cut = {name: count for name, split in splits.items() if (count := self.cut(split, split.documents))}
        if not cut:
            return []
        longest = f"train.sequence_tokens ({self.sequence_tokens})"
        return [f"documents longer than {longest} are cut to it: {listed(cut)}"]

    def batches(self, split: TokenSplit, *, batch_sequences: int, seed: int) -> WholeDocuments:
        """Returns batches of whole documents; every document once an epoch.

        Raises:
            DataError: the split has no document.
        """
        if not split.documents:
            raise DataError("the {name} split has no document", fix="give more data", name=split.name)
        return WholeDocuments(task=self, split=split, batch_sequences=batch_sequences, seed=seed)

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns the number of documents."""
        return torch.full((), batch["tokens"].shape[0], device=batch["tokens"].device)

    def inputs(self, network: Network, batch: Batch) -> Batch:
        """Returns the micro batch as it is; for an encoder padding is a document of its own."""
        if self.frame is None:
            return batch
        places = torch.arange(batch["tokens"].shape[1], device=batch["tokens"].device)
        return {**batch, "documents": (places > batch["last"].unsqueeze(1)).long()}

    def part(self, inputs: Batch, places: Int[Tensor, " part"]) -> Batch:
        """Returns what a rank needs that has these tokens of every document; it answers where the last one is."""
        last = inputs["last"].unsqueeze(1) == places
        tokens = inputs["tokens"][:, places]
        return {**inputs, "tokens": tokens, "last": last.int().argmax(dim=1), "here": last.any(dim=1), "places": places}

    def hidden(self, network: Network, inputs: Batch) -> Float[Tensor, "batch width"]:
        """Returns the hidden state of each document's last token; of a framed one of its first, or the mean of all."""
        known = {name: inputs[name] for name in ("samples", "places", "documents") if name in inputs}
        hidden: Tensor = network(inputs["tokens"], **known)
        if self.frame is not None:
            return hidden[:, 0] if network.spec.pooling == "first" else mean_of(hidden, inputs["documents"] == 0)
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), inputs["last"]]

    def outputs(
        self, network: Network, split: TokenSplit, options: EvaluationOptions
    ) -> Iterator[tuple[Batch, float, NDArray[np.floating[Any]]]]:
        """Yields batches of the split's first documents in order, each with its summed loss and the head's outputs.

        Raises:
            DataError: the split has no document to measure.
        """
        total = int(
            np.searchsorted(split.document_ends, np.uint64(covered_tokens(split, options.tokens)), side="right")
        )
        if not total:
            raise DataError(
                "the {name} split has no document to measure", fix="give it more documents", name=split.name
            )
        source = self.batches(split, batch_sequences=options.batch_sequences, seed=0)
        training, answered, answers = network.training, 0, self.units(split, total)
        network.eval()
        try:
            for start in range(0, total, options.batch_sequences):
                stop = min(start + options.batch_sequences, total)
                batch = source.documents(np.arange(start, stop))
                yield batch, *self._answered(network, batch)
                answered += int(self.weight(batch))
                if options.progress is not None:
                    options.progress(answered, answers)
        finally:
            network.train(training)

    @torch.inference_mode()
    def _answered(self, network: Network, batch: Batch) -> tuple[float, NDArray[np.floating[Any]]]:
        here = self.inputs(network, {name: tensor.to(network.device) for name, tensor in batch.items()})
        hidden = self.hidden(network, here)
        loss, _ = self.loss(network, hidden, here)
        return float(loss), network.logits(hidden).cpu().numpy()


def mean_of(
    hidden: Float[Tensor, "batch seq width"], inside: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch width"]:
    """Returns the mean of the hidden states that are inside."""
    kept = inside.unsqueeze(-1)
    return torch.where(kept, hidden, 0.0).sum(dim=1) / kept.sum(dim=1)


def answered_here(inputs: Batch) -> Bool[Tensor, " batch"]:
    """Returns which documents this rank answers: all of them, but for sequences that lie on several ranks."""
    if "here" in inputs:
        return inputs["here"]
    return torch.ones(inputs["tokens"].shape[0], dtype=torch.bool, device=inputs["tokens"].device)


def listed(counts: Mapping[str, int]) -> str:
    """Returns documents by split in words: ``3 of train, 1 of test``."""
    return ", ".join(f"{count:,} of {name}" for name, count in counts.items())
