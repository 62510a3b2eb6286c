"""A batch as a task makes it, of documents that are numbers: shapes are a training's, and no dataset is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from trainwright.artifact.model_folder import TOKENIZER
from trainwright.artifact.shard_writer import SplitWriter, image_writer, write_dataset, write_image_dataset
from trainwright.artifact.shards import (
    ANSWERED,
    DOCUMENTS,
    LABEL_SETS,
    NUMBERS,
    PREFERENCES,
    VALUES,
    WORDS,
    TokenDataset,
)
from trainwright.model.tasks.task import Batch, Batches, Task, batch_of, load_task, without_reference
from trainwright.spec.parts.images import ImageForm
from trainwright.spec.parts.targets import TargetScale
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.data import ImagesSection
from trainwright.stages.train.batches.keyed import KeyedBatches

SPLITS = ("train", "validation")
END_OF_TEXT, MASK = "<|endoftext|>", "[MASK]"


def task_and_batch(recipe: Recipe, *, vocabulary: int, sequences: int) -> tuple[Task, Batch]:
    """Returns the recipe's task, and the first batch of so many sequences that it makes.

    A task sees its batches alone, so that a plug-in's are what it makes of any dataset: documents that fill a sequence,
    with the labels that the recipe names.

    Raises:
        RecipeError: as ``load_task``; or the vocabulary has one token alone.
        DataError: the task refuses such documents.
    """
    with TemporaryDirectory(prefix="trainwright-") as folder:
        dataset = _dataset(Path(folder), recipe, vocabulary=vocabulary, documents=sequences + 2)
        task = without_reference(load_task(recipe, dataset), dataset.splits)
        batches: Batches = task.batches(dataset.splits[SPLITS[0]], batch_sequences=sequences, seed=recipe.seed)
        if recipe.model_spec(vocabulary=vocabulary).dropout or recipe.train.method.dropout:
            batches = KeyedBatches(batches, recipe.seed)
        return task, batch_of(batches, 0, None)


def _dataset(path: Path, recipe: Recipe, *, vocabulary: int, documents: int) -> TokenDataset:
    """Returns a dataset of documents as long as a sequence, each with one of the task's labels, if it has any.

    For a task of numbers each has its own. Of chats all tokens but the first are answers; of preferences two chats fill
    a sequence.
    """
    if recipe.data.images is not None:
        return _images(path, recipe.data.images, recipe.task.labels, images=documents)
    labels, size, needs = recipe.task.labels, recipe.train.sequence_tokens, recipe.task.kind.needs
    if needs in (PREFERENCES, "pairs"):
        texts = max(recipe.data.texts, 2)
        size, documents = size // texts, texts * documents
    entries = {}
    for name in SPLITS:
        writer = SplitWriter(path, name, vocabulary=vocabulary, end_of_text_id=0)
        for number in range(documents):
            ids = np.arange(number, number + size) % (vocabulary - 1) + 1
            if needs in ANSWERED:
                writer.append_chat(ids, np.arange(size) > 0, text_bytes=size)
            elif needs == WORDS:
                writer.append_words(ids, (ids % len(labels)).astype(np.uint16), text_bytes=size)
            else:
                of_class = number % len(labels) if labels else None
                writer.append(ids, text_bytes=size, label=float(number) if needs == NUMBERS else of_class)
        entries[name] = writer.close()
    # Encoders ask which tokens stand around a text and which one for a gap.
    Tokenizer(WordLevel({END_OF_TEXT: 0, MASK: 1}, END_OF_TEXT)).save(str(path / TOKENIZER))
    kind = needs if needs in (*ANSWERED, NUMBERS, WORDS, "pairs") else DOCUMENTS
    write_dataset(
        path,
        vocabulary=vocabulary,
        end_of_text=END_OF_TEXT,
        end_of_text_id=0,
        splits=entries,
        labels=labels,
        label_sets=[(number,) for number in range(len(labels))] if needs == LABEL_SETS else (),
        scale=TargetScale.of(map(float, range(documents))) if needs == NUMBERS else None,
        kind=kind,
    )
    return TokenDataset.open(path)


def _images(path: Path, asked: ImagesSection, labels: Sequence[str], *, images: int) -> TokenDataset:
    """Returns a dataset of images that are alike but for their class."""
    entries = {}
    for name in SPLITS:
        writer = image_writer(path, name)
        values = np.arange(images * asked.values) % VALUES
        ends = np.arange(1, images + 1, dtype=np.uint64) * np.uint64(asked.values)
        sizes, classes = np.full(images, asked.values, np.uint64), np.arange(images) % len(labels)
        writer.extend(values.astype(np.uint8), ends, sizes, labels=classes.astype(np.uint16))
        entries[name] = writer.close()
    each = (0.5,) * asked.channels
    form = ImageForm(size=asked.size, channels=asked.channels, mean=each, std=each)
    write_image_dataset(path, form, splits=entries, labels=labels)
    return TokenDataset.open(path)
