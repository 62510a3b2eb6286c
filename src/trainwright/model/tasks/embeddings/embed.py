"""Embed: a vector of a text, near those of texts that belong to it; by contrast with the other texts of a group.

All texts of a record lie in one sequence, each a document of its own. Groups are so many neighbouring records of the
batch as the recipe says, so that neither micro batches nor ranks decide what is contrasted with what.

Shape legend: ``batch`` (sequences, a record each), ``seq`` (tokens of a sequence), ``width``, ``texts`` (of a record).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.attention import document_positions
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.tasks.documents.whole import FRAME_TOKENS, frame_of, listed
from trainwright.model.tasks.embeddings.contrast import info_nce, pooled
from trainwright.model.tasks.embeddings.search import search
from trainwright.model.tasks.epochs import drawn
from trainwright.model.tasks.evaluate_loss import covered_tokens
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import EmbedSection

PAIRS = "pairs"


def embed(recipe: Recipe, dataset: TokenDataset) -> Embed:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset holds no pairs, or others than the recipe's sources give.
        RecipeError: no token of a text has room in a sequence.
    """
    how, texts = recipe.task, recipe.data.texts
    assert isinstance(how, EmbedSection)
    if dataset.kind != PAIRS:
        fix = "give sources of kind: pairs"
        raise DataError("this dataset holds no pairs", where=dataset.path, seen=dataset.kind, expected=PAIRS, fix=fix)
    for split in dataset.splits.values():
        if split.documents % texts:
            raise DataError(
                "the texts of this dataset are no records of so many",
                where=dataset.path,
                seen=f"{split.documents} texts in {split.name}",
                expected=f"a multiple of {texts}",
            )
    encodes = recipe.model_spec(vocabulary=dataset.vocabulary).kind == "encoder"
    size, frame = recipe.train.sequence_tokens, frame_of(dataset) if encodes else None
    if size // texts <= (FRAME_TOKENS if encodes else 0):
        raise RecipeError(
            "no token of a text has room in its part of a sequence",
            where="train.sequence_tokens",
            seen=size,
            expected=f"at least {texts * (FRAME_TOKENS + 1 if encodes else 1)} for {texts} texts",
        )
    return Embed(how=how, texts=texts, sequence_tokens=size, padding=dataset.end_of_text_id, frame=frame)


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedTexts:
    """Records of a split in a counter-based random order, each in a sequence of its own."""

    task: Embed
    split: TokenSplit
    batch_sequences: int
    seed: int = 0

    def batch(self, step: int, rows: range | None = None) -> dict[str, Tensor]:
        """Returns ``tokens`` and ``documents`` ``[batch, seq]``, and ``keys`` ``[batch, texts]``."""
        read = range(self.batch_sequences) if rows is None else rows
        records = self.split.documents // self.task.texts
        return self.records(drawn(step, read, batch=self.batch_sequences, documents=records, seed=self.seed)[1])

    def records(self, numbers: NDArray[np.int64]) -> dict[str, Tensor]:
        """Returns these records as a batch.

        ``documents`` says which text of its record each token is of, padding being one more; ``keys`` are checksums of
        the texts' tokens.
        """
        task = self.task
        shape = (len(numbers), task.sequence_tokens)
        tokens, documents = np.full(shape, task.padding, np.int64), np.full(shape, task.texts, np.int64)
        keys = np.empty((len(numbers), task.texts), np.int64)
        for row, number in enumerate(numbers):
            at = 0
            for text in range(task.texts):
                ids = task.cut_to_room(self._text(int(number) * task.texts + text))
                here = slice(at, at + len(ids))
                tokens[row, here], documents[row, here], at = ids, text, here.stop
                keys[row, text] = crc32(ids.tobytes()) << 24 | len(ids)
        made = (("tokens", tokens), ("documents", documents), ("keys", keys))
        return {name: torch.from_numpy(values) for name, values in made}

    def _text(self, number: int) -> NDArray[np.int64]:
        """Returns the ids of a text without its end-of-text token."""
        start = int(self.split.document_ends[number - 1]) if number else 0
        return self.split.read(start, int(self.split.document_ends[number]) - 1).astype(np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Embed:
    """InfoNCE of each pair in its group; ``texts`` are those of a record, and ``frame`` stands around each of them."""

    how: EmbedSection
    texts: int
    sequence_tokens: int
    padding: int
    frame: tuple[int, int] | None = None

    @property
    def unit(self) -> str:
        """Losses are averaged over pairs."""
        return "pair"

    @property
    def room(self) -> int:
        """Returns how many tokens of a text are read, without its frame."""
        return self.sequence_tokens // self.texts - (0 if self.frame is None else FRAME_TOKENS)

    def cut_to_room(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns what is read of a text, with its frame."""
        if self.frame is None:
            return ids[: self.room]
        first, last = self.frame
        return np.concatenate([[first], ids[: self.room], [last]]).astype(np.int64)

    def cut(self, split: TokenSplit, texts: int) -> int:
        """Returns how many of a split's first texts are longer than their room."""
        sizes = np.diff(split.document_ends[:texts].astype(np.int64), prepend=0) - 1
        return int((sizes > self.room).sum())

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns a line where texts are cut."""
        cut = {name: count for name, split in splits.items() if (count := self.cut(split, split.documents))}
        if not cut:
            return ()
        part = f"train.sequence_tokens ({self.sequence_tokens}) has room for {self.texts} texts of {self.room} tokens"
        return (f"{part}: longer ones are cut to it: {listed(cut)}",)

    def batches(self, split: TokenSplit, *, batch_sequences: int, seed: int) -> PairedTexts:
        """Returns batches of records; every record once an epoch.

        Raises:
            DataError: the split has no record.
        """
        if split.documents < self.texts:
            raise DataError("the {name} split has no pair", fix="give more data", name=split.name)
        return PairedTexts(task=self, split=split, batch_sequences=batch_sequences, seed=seed)

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns the number of pairs."""
        return torch.full((), batch["tokens"].shape[0], device=batch["tokens"].device)

    def inputs(self, network: Network, batch: Batch) -> Batch:
        """Returns the micro batch, with ``positions`` in each text where the network looks them up."""
        if not network.has_position_table:
            return batch
        return {**batch, "positions": document_positions(batch["documents"])}

    def hidden(self, network: Network, inputs: Batch) -> Float[Tensor, "batch seq width"]:
        """Returns the hidden state of every token."""
        known = {name: inputs[name] for name in ("positions", "documents", "samples") if name in inputs}
        hidden: Tensor = network(inputs["tokens"], **known)
        return hidden

    def embeddings(
        self, hidden: Float[Tensor, "batch seq width"], documents: Int[Tensor, "batch seq"]
    ) -> Float[Tensor, "batch texts width"]:
        """Returns the embedding of each text."""
        return pooled(hidden, documents, texts=self.texts, pooling=self.how.pooling)

    def loss(self, network: Network, hidden: Float[Tensor, "batch seq width"], inputs: Batch) -> Loss:
        """Returns the summed loss of the pairs, and how many there are.

        Raises:
            RecipeError: the pairs at hand are not whole groups.
        """
        del network
        made, group = self.embeddings(hidden, inputs["documents"]), self.how.group
        if len(made) % group:
            raise RecipeError(
                "a micro batch ends inside a group of pairs",
                where="task.group",
                seen=f"{len(made)} pairs",
                expected=f"a multiple of {group}",
                fix="set train.exec.micro_batch to a multiple of task.group",
            )
        groups = (len(made) // group, group, self.texts)
        losses = info_nce(
            made.reshape(*groups, made.shape[-1]),
            inputs["keys"].reshape(groups),
            temperature=self.how.cosine_temperature,
        )
        return losses.sum(), self.weight(inputs)

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure the loss of groups in the split's order, and how well positives are found among all candidates."""
        made, keys = self.measure(network, split, options)
        found = search(made, keys)
        metrics = {
            "loss": Metric(value=self._mean_loss(made, keys), unit="nats/pair"),
            "recall_at_1": Metric(value=found.recall(1)),
            "recall_at_10": Metric(value=found.recall(10)),
            "mrr": Metric(value=found.reciprocal_rank),
        }
        record = {"candidates": found.candidates, "cut_texts": self.cut(split, keys.size)}
        details = {"found_last": found.hardest(), "recall": found.curve()} if options.detailed else {}
        return Evaluation(count=len(made), metrics=metrics, record=record, details=details)

    def _mean_loss(self, made: NDArray[np.float32], keys: NDArray[np.int64]) -> float:
        """Returns the mean loss of the records in groups of neighbours; the last group may be smaller."""
        total = 0.0
        for start in range(0, len(made), self.how.group):
            rows = slice(start, start + self.how.group)
            each = torch.from_numpy(made[rows]).double(), torch.from_numpy(keys[rows])
            total += float(info_nce(each[0][None], each[1][None], temperature=self.how.cosine_temperature).sum())
        return total / len(made)

    def measure(
        self, network: Network, split: TokenSplit, options: EvaluationOptions
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the embeddings ``[records, texts, width]`` and keys ``[records, texts]`` of a split's first records.

        At least of one, however few tokens are asked for.

        Raises:
            DataError: the split has none.
        """
        ends = covered_tokens(split, options.tokens)
        total = max(1, int(np.searchsorted(split.document_ends, np.uint64(ends), side="right")) // self.texts)
        source, training = self.batches(split, batch_sequences=options.batch_sequences, seed=0), network.training
        made, keys = [], []
        network.eval()
        try:
            for start in range(0, total, options.batch_sequences):
                stop = min(start + options.batch_sequences, total)
                batch = source.records(np.arange(start, stop))
                made.append(self._made(network, batch))
                keys.append(batch["keys"].numpy())
                if options.progress is not None:
                    options.progress(stop, total)
        finally:
            network.train(training)
        return np.concatenate(made), np.concatenate(keys)

    @torch.no_grad()  # buffers that FSDP makes in a first pass in inference mode are of no use to training
    def _made(self, network: Network, batch: Batch) -> NDArray[np.float32]:
        here = self.inputs(network, {name: tensor.to(network.device) for name, tensor in batch.items()})
        return self.embeddings(self.hidden(network, here), here["documents"]).float().cpu().numpy()
