"""Telling the class of a document: the head reads the hidden state of its last token, of an encoder of its first one.

Shape legend: ``batch`` (documents), ``seq`` (tokens of a sequence), ``width``, ``classes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import LABELLED, TokenDataset, TokenSplit
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.conventions import read_tokenizer
from trainwright.model.losses import IGNORE, Loss
from trainwright.model.network import Network
from trainwright.model.tasks.confusion import Confusion
from trainwright.model.tasks.epochs import drawn
from trainwright.model.tasks.evaluate_loss import covered_tokens
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.spec.recipe import Recipe

FRAME_TOKENS = 2
"""Around a document that an encoder reads: one before it, one behind it."""


def classify(recipe: Recipe, dataset: TokenDataset) -> Classify:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset's documents have no labels.
        RecipeError: they have labels that ``task.labels`` lacks.
    """
    if dataset.kind != LABELLED:
        raise DataError(
            "the documents of this dataset have no labels", where=dataset.path, seen=dataset.kind, expected=LABELLED
        )
    recipe.task.check_labels(dataset.labels)
    encodes = recipe.model_spec(vocabulary=dataset.vocabulary).kind == "encoder"
    if encodes and recipe.train.sequence_tokens <= FRAME_TOKENS:
        raise RecipeError(
            "no token of a document has room between the first and the last of an encoder's sequence",
            where="train.sequence_tokens",
            seen=recipe.train.sequence_tokens,
            expected=f"more than {FRAME_TOKENS}",
        )
    return Classify(
        sequence_tokens=recipe.train.sequence_tokens,
        labels=recipe.task.labels,
        class_of_label=tuple(recipe.task.labels.index(name) for name in dataset.labels),
        padding=dataset.end_of_text_id,
        frame=frame_of(dataset) if encodes else None,
    )


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
class LabelledDocuments:
    """Documents in a counter-based random order, each cut to ``sequence_tokens`` or padded to it on the right.

    A ``frame`` stands around each, within ``sequence_tokens``. No token of a document sees the padding behind it: a
    decoder's attention is causal, and an encoder's hides it.
    """

    split: TokenSplit
    sequence_tokens: int
    batch_sequences: int
    class_of_label: tuple[int, ...]
    padding: int
    frame: tuple[int, int] | None = None
    seed: int = 0

    def batch(self, step: int, rows: range | None = None) -> dict[str, Tensor]:
        """Returns ``tokens`` ``[batch, seq]``, and of each document its ``last`` token's place and its ``class``."""
        read = range(self.batch_sequences) if rows is None else rows
        batch, documents = self.batch_sequences, self.split.documents
        return self.documents(drawn(step, read, batch=batch, documents=documents, seed=self.seed)[1])

    def documents(self, numbers: NDArray[np.int64]) -> dict[str, Tensor]:
        """Returns these documents as a batch."""
        tokens = np.full((len(numbers), self.sequence_tokens), self.padding, np.int64)
        last = np.empty(len(numbers), np.int64)
        for row, number in enumerate(numbers):
            start = int(self.split.document_ends[number - 1]) if number else 0
            size = int(self.split.document_ends[number]) - start - 1  # without its end-of-text token
            if self.frame is None:
                size = min(max(size, 1), self.sequence_tokens)  # but for a document of no other token
                tokens[row, :size] = self.split.read(start, start + size)
                last[row] = size - 1
            else:
                size = min(size, self.sequence_tokens - FRAME_TOKENS)
                tokens[row, 0], tokens[row, size + 1] = self.frame
                tokens[row, 1 : size + 1] = self.split.read(start, start + size)
                last[row] = size + 1
        classes = np.array(self.class_of_label, np.int64)[self.split.document_labels[numbers]]
        return {name: torch.from_numpy(part) for name, part in (("tokens", tokens), ("last", last), ("class", classes))}


@dataclass(frozen=True, kw_only=True, slots=True)
class Classify:
    """Cross-entropy of a document's class, given the document.

    ``labels`` name the classes in the head's order; ``class_of_label`` says which class each label of the dataset is.
    A ``frame`` of two tokens stands around each document for an encoder, which tells the class at the first of them.
    """

    sequence_tokens: int
    labels: tuple[str, ...]
    class_of_label: tuple[int, ...]
    padding: int
    frame: tuple[int, int] | None = None

    @property
    def unit(self) -> str:
        """Losses are averaged over documents."""
        return "document"

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns a line for documents that are cut, and one for each label that no document of ``train`` has."""
        notes = []
        cut = {name: count for name, split in splits.items() if (count := self._cut(split, split.documents))}
        if cut:
            notes.append(
                f"documents longer than train.sequence_tokens ({self.sequence_tokens}) are cut to it: {_listed(cut)}"
            )
        documents = {name: self._by_class(split) for name, split in splits.items()}
        for number, label in enumerate(self.labels):
            if not documents["train"][number]:
                others = {name: int(counts[number]) for name, counts in documents.items() if counts[number]}
                where = f" ({_listed(others)})" if others else ""
                notes.append(f"no document of the train split has the label {label!r}{where}")
        return notes

    def _cut(self, split: TokenSplit, documents: int) -> int:
        """How many of a split's first documents are longer than a sequence, without their end-of-text token."""
        sizes = np.diff(split.document_ends[:documents].astype(np.int64), prepend=0) - 1
        return int((sizes > self.sequence_tokens - (0 if self.frame is None else FRAME_TOKENS)).sum())

    def _by_class(self, split: TokenSplit) -> NDArray[np.int64]:
        """How many documents of a split each class has."""
        classes = np.array(self.class_of_label, np.int64)[split.document_labels]
        return np.bincount(classes, minlength=len(self.labels))

    def batches(self, split: TokenSplit, *, batch_sequences: int, seed: int) -> LabelledDocuments:
        """Returns batches of whole documents; every document once an epoch.

        Raises:
            DataError: the split has no document.
        """
        if not split.documents:
            raise DataError("the {name} split has no document", fix="give more data", name=split.name)
        return LabelledDocuments(
            split=split,
            sequence_tokens=self.sequence_tokens,
            batch_sequences=batch_sequences,
            class_of_label=self.class_of_label,
            padding=self.padding,
            frame=self.frame,
            seed=seed,
        )

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns the number of documents."""
        return torch.tensor(batch["class"].shape[0], device=batch["class"].device)

    def inputs(self, network: Network, batch: Batch) -> Batch:
        """Returns the micro batch as it is; for an encoder padding is a document of its own."""
        if self.frame is None:
            return batch
        places = torch.arange(batch["tokens"].shape[1], device=batch["tokens"].device)
        return {**batch, "documents": (places > batch["last"].unsqueeze(1)).long()}

    def part(self, inputs: Batch, places: Int[Tensor, " part"]) -> Batch:
        """Returns what a rank needs that has these tokens of every document; a class counts where the last one is."""
        last = inputs["last"].unsqueeze(1) == places
        classes = torch.where(last.any(dim=1), inputs["class"], IGNORE)
        tokens = inputs["tokens"][:, places]
        return {**inputs, "tokens": tokens, "last": last.int().argmax(dim=1), "class": classes, "places": places}

    def hidden(self, network: Network, inputs: Batch) -> Float[Tensor, "batch width"]:
        """Returns the hidden state of each document's last token; of a framed one of its first."""
        known = {name: inputs[name] for name in ("samples", "places", "documents") if name in inputs}
        hidden: Tensor = network(inputs["tokens"], **known)
        if self.frame is not None:
            return hidden[:, 0]
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), inputs["last"]]

    def loss(self, network: Network, hidden: Float[Tensor, "batch width"], inputs: Batch) -> Loss:
        """Returns the summed cross-entropy of the classes."""
        return network.head_loss(hidden, inputs["class"])

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss, accuracy and F1; ``details`` hold them by label, and the confusion matrix."""
        confusion, nats = Confusion.empty(self.labels), 0.0
        training = network.training
        network.eval()
        try:
            for batch, done, total in self._in_order(split, options.batch_sequences, options.tokens):
                part, predicted = self._predict(network, batch)
                nats += part
                confusion.add(batch["class"].numpy(), predicted)
                if options.progress is not None:
                    options.progress(done, total)
        finally:
            network.train(training)
        return self._evaluation(confusion, nats, cut=self._cut(split, confusion.documents), detailed=options.detailed)

    def _in_order(
        self, split: TokenSplit, batch_sequences: int, tokens: int | None
    ) -> Iterator[tuple[Batch, int, int]]:
        """Yields the split's first documents in batches, with how many of how many are in them so far."""
        total = int(np.searchsorted(split.document_ends, np.uint64(covered_tokens(split, tokens)), side="right"))
        if not total:
            raise DataError(
                "the {name} split has no document to measure", fix="give it more documents", name=split.name
            )
        source = self.batches(split, batch_sequences=batch_sequences, seed=0)
        for start in range(0, total, batch_sequences):
            stop = min(start + batch_sequences, total)
            yield source.documents(np.arange(start, stop)), stop, total

    @torch.inference_mode()
    def _predict(self, network: Network, batch: Batch) -> tuple[float, NDArray[np.int64]]:
        """Returns the summed loss of a batch and the likeliest class of each document."""
        here = self.inputs(network, {name: tensor.to(network.device) for name, tensor in batch.items()})
        hidden = self.hidden(network, here)
        loss, _ = self.loss(network, hidden, here)
        return float(loss), network.logits(hidden).argmax(dim=-1).cpu().numpy()

    def _evaluation(self, confusion: Confusion, nats: float, *, cut: int, detailed: bool) -> Evaluation:
        metrics = {
            "loss": Metric(value=nats / confusion.documents, unit="nats/document"),
            "accuracy": Metric(value=confusion.accuracy),
            "macro_f1": Metric(value=confusion.macro_f1),
        }
        record = {"cut_documents": cut, "commonest_class_accuracy": confusion.commonest_class_accuracy}
        details = {"by_label": confusion.by_label(), "confusion": confusion.to_json()} if detailed else {}
        return Evaluation(count=confusion.documents, metrics=metrics, record=record, details=details)


def _listed(counts: Mapping[str, int]) -> str:
    """Documents by split in words: ``3 of train, 1 of test``."""
    return ", ".join(f"{count:,} of {name}" for name, count in counts.items())
