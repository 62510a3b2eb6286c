"""Telling the label of each word: its name's kind, its part of speech.

A word's label stands at its first token; other tokens and those around a sentence count for nothing, as in the token
classification of transformers.

Shape legend: ``batch`` (sentences), ``seq`` (tokens of a sequence), ``width``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shard_files import NO_TAG
from trainwright.artifact.shards import WORDS, TokenDataset, TokenSplit
from trainwright.core.errors import DataError
from trainwright.model.losses import IGNORE, Loss
from trainwright.model.network import Network
from trainwright.model.tasks.confusion import Confusion
from trainwright.model.tasks.documents.whole import FRAME_TOKENS, Answers, DocumentTask, form_of, listed
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.model.tasks.words.entities import EntityCounts, scheme_of
from trainwright.spec.recipe import Recipe

AT_ONCE = 1 << 20
"""Tokens whose labels are looked at together."""


def classify_tokens(recipe: Recipe, dataset: TokenDataset) -> ClassifyTokens:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset's words have no labels.
        RecipeError: they have labels that ``task.labels`` lacks.
    """
    form = form_of(recipe, dataset, kind=WORDS)
    recipe.task.check_labels(dataset.labels)
    classes = tuple(recipe.task.labels.index(name) for name in dataset.labels)
    return ClassifyTokens(labels=recipe.task.labels, class_of_label=classes, **form)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyTokens(DocumentTask):
    """Cross-entropy of the class of each word, given its sentence; a decoder has read it up to the word's first token.

    ``labels`` name the classes in the head's order; ``class_of_label`` says which class each label of the dataset is.
    """

    labels: tuple[str, ...]
    class_of_label: tuple[int, ...]

    @property
    def unit(self) -> str:
        """Losses are averaged over words."""
        return "word"

    @property
    def room(self) -> int:
        """Returns how many tokens of a sentence a sequence holds."""
        return self.sequence_tokens - (0 if self.frame is None else FRAME_TOKENS)

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns a line for words that are cut off, and one for each label that no word of ``train`` has."""
        cut = {name: count for name, split in splits.items() if (count := self.cut(split, split.documents))}
        longest = f"train.sequence_tokens ({self.sequence_tokens})"
        notes = [f"words behind the first {longest} tokens of a sentence are cut off: {listed(cut)}"] if cut else []
        train = splits["train"]
        seen = np.zeros(NO_TAG + 1, np.bool_)
        for start in range(0, train.tokens, AT_ONCE):
            seen[train.tags(start, min(start + AT_ONCE, train.tokens))] = True
        there = {self.class_of_label[number] for number in np.flatnonzero(seen[:NO_TAG])}
        missing = (name for number, name in enumerate(self.labels) if number not in there)
        return [*notes, *(f"no word of the train split has the label {name!r}" for name in missing)]

    def cut(self, split: TokenSplit, documents: int) -> int:
        """Returns how many words with a label stand behind what a sequence holds of a split's first sentences."""
        ends = split.document_ends[:documents].astype(np.int64)
        starts = np.concatenate([ends[:0], [0], ends[:-1]])[: len(ends)]
        long = np.flatnonzero(ends - 1 - starts > self.room)
        return sum(_labelled(split, int(starts[each]) + self.room, int(ends[each])) for each in long)

    def units(self, split: TokenSplit, documents: int) -> int:
        """Returns how many words of a split's first sentences have an answer."""
        end = int(split.document_ends[documents - 1]) if documents else 0
        return _labelled(split, 0, end) - self.cut(split, documents)

    def answers(self, split: TokenSplit, numbers: NDArray[np.int64]) -> Answers:
        """Returns ``targets`` ``[batch, seq]``: the class at the first token of each word, else ``IGNORE``."""
        first = 0 if self.frame is None else 1
        targets = np.full((len(numbers), self.sequence_tokens), IGNORE, np.int64)
        classes = np.array(self.class_of_label, np.int64)
        for row, number in enumerate(numbers):
            start = int(split.document_ends[number - 1]) if number else 0
            tags = split.tags(start, min(int(split.document_ends[number]) - 1, start + self.room))
            places = np.flatnonzero(tags != NO_TAG)
            targets[row, first + places] = classes[tags[places]]
        return {"targets": targets}

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns the number of words."""
        return (batch["targets"] != IGNORE).sum()

    def part(self, inputs: Batch, places: Int[Tensor, " part"]) -> Batch:
        """Returns what a rank needs that has these tokens of every sentence; it answers for the words among them."""
        own = {name: inputs[name][:, places] for name in ("tokens", "targets")}
        return {**inputs, **own, "places": places}

    def hidden(self, network: Network, inputs: Batch) -> Float[Tensor, "batch seq width"]:
        """Returns the hidden state of every token."""
        known = {name: inputs[name] for name in ("samples", "places", "documents") if name in inputs}
        hidden: Tensor = network(inputs["tokens"], **known)
        return hidden

    def loss(self, network: Network, hidden: Float[Tensor, "batch seq width"], inputs: Batch) -> Loss:
        """Returns the summed cross-entropy of the words' classes, and how many there are."""
        return network.head_loss(hidden.flatten(0, 1), inputs["targets"].flatten())

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss, accuracy and F1 of words, and of entities where labels name some.

        Raises:
            DataError: no word of the split has a label.
        """
        confusion, nats, scheme, sentences = Confusion.empty(self.labels), 0.0, scheme_of(self.labels), 0
        counts = None if scheme is None else EntityCounts(scheme)
        for batch, part, outputs in self.outputs(network, split, options):
            targets, told = batch["targets"].numpy(), outputs.argmax(axis=-1)
            here = targets != IGNORE
            nats, sentences = nats + part, sentences + len(targets)
            confusion.add(targets[here], told[here])
            if counts is not None:
                for true, said, words_of in zip(targets, told, here, strict=True):
                    counts.add(self._names(true[words_of]), self._names(said[words_of]))
        words = confusion.documents
        if not words:
            fix = "give it more sentences (data.sources, data.split)"
            raise DataError("the {name} split is too short to measure", seen="no word", fix=fix, name=split.name)
        metrics = {
            "loss": Metric(value=nats / words, unit="nats/word"),
            "accuracy": Metric(value=confusion.accuracy),
            "macro_f1": Metric(value=confusion.macro_f1),
        }
        record: dict[str, Any] = {
            "cut_words": self.cut(split, sentences),
            "commonest_class_accuracy": confusion.commonest_class_accuracy,
        }
        details: dict[str, Any] = {"by_label": confusion.by_label("words"), "confusion": confusion.to_json()}
        if counts is not None:
            rates = counts.rates().items()
            metrics |= {f"entity_{name}": Metric(value=math.nan if rate is None else rate) for name, rate in rates}
            record |= {"scheme": counts.scheme, "entities": counts.there.total()}
            details = {"by_entity": counts.by_kind(), **details}
        return Evaluation(count=words, metrics=metrics, record=record, details=details if options.detailed else {})

    def _names(self, classes: NDArray[np.int64]) -> list[str]:
        return [self.labels[number] for number in classes]


def _labelled(split: TokenSplit, start: int, stop: int) -> int:
    """Returns how many words with a label begin in a range of a split."""
    return int((split.tags(start, stop) != NO_TAG).sum())
