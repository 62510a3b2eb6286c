"""From a recipe and what is known of its dataset to the workload: the one place where lengths become steps."""

from __future__ import annotations

import json
from math import log2
from pathlib import Path

from trainwright.artifact.shards import DATASET
from trainwright.artifact.store import Artifact
from trainwright.core.errors import DataError, RecipeError
from trainwright.core.paths import local_path, regular
from trainwright.core.units import parse_duration
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts, Precision, Workload

DEFAULT_VALIDATION_TOKENS = 100_000
"""Taken where the recipe validates on a whole split whose size is not known yet."""
BYTES = 256
"""Tokens that a byte-level tokenizer has for the bytes themselves."""
BYTES_PER_DOUBLING = 0.4
"""Bytes by which a token grows with each doubling of the vocabulary: 4 bytes at 50,257 entries, as GPT-2 on English."""
DOCUMENT_BYTES = 500
"""Taken for a document where none was counted: sentences have 50 bytes, articles 5,000."""


def resolve(recipe: Recipe, facts: DatasetFacts, *, precision: Precision) -> Workload:
    """Returns the workload of a recipe: its batch, its steps, its validations.

    Args:
        recipe: the run.
        facts: of the dataset, counted or estimated.
        precision: of the matrices, with ``auto`` resolved.

    Raises:
        RecipeError: the run is shorter than one update, or its length is not known.
    """
    section = recipe.train
    steps = steps_in(recipe, section.duration, facts)
    if steps < 1:
        raise too_short(recipe, facts)
    return Workload(
        sequence_tokens=section.sequence_tokens,
        batch_tokens=section.batch_tokens,
        steps=steps,
        precision=precision,
        optimizer=section.optimizer.counted_as,
        recompute=section.recompute,
        document_masking=section.document_masking,
        validation_tokens=validation_tokens(recipe, facts),
        validations=-(-steps // section.validation.every_steps) if recipe.data.split.validation > 0 else 0,
    )


def validation_tokens(recipe: Recipe, facts: DatasetFacts) -> int:
    """Returns the tokens of one validation: those that are asked for, of a split that may be smaller."""
    known = (recipe.train.validation.tokens, facts.validation_tokens)
    return min(filter(None, known), default=DEFAULT_VALIDATION_TOKENS)


def too_short(recipe: Recipe, facts: DatasetFacts) -> RecipeError:
    """Returns the error for a run that rounds to no update."""
    section = recipe.train
    tokens, unit = tokens_in(recipe, section.duration, facts), parse_duration(section.duration).unit
    about = "about " if unit == "epochs" and not facts.counted else ""
    return RecipeError(
        "the run is shorter than one update",
        where="train.duration",
        seen=section.duration + (f", which is {about}{tokens:,} tokens" if tokens and unit != "tokens" else ""),
        expected=f"at least train.batch_tokens ({section.batch_tokens:,})",
        fix="write for example 100 steps",
    )


def steps_in(recipe: Recipe, duration: str, facts: DatasetFacts) -> int:
    """Returns the updates in a duration, rounded to whole ones; raises as ``tokens_in``."""
    return round(tokens_in(recipe, duration, facts) / recipe.train.batch_tokens)


def tokens_in(recipe: Recipe, duration: str, facts: DatasetFacts) -> int:
    """Returns the tokens in a duration, before rounding to whole updates.

    Raises:
        RecipeError: it is in epochs, and nothing is known of the dataset.
    """
    epoch_tokens = None
    if facts.train_tokens is not None:
        epoch_tokens = recipe.epoch_tokens(tokens=facts.train_tokens, documents=facts.train_documents or 0)
    return parse_duration(duration).tokens(
        batch_tokens=recipe.train.batch_tokens,
        parameters=total_parameters(recipe.model_spec(vocabulary=facts.vocabulary)),
        epoch_tokens=epoch_tokens,
    )


def counted_facts(dataset: Artifact) -> DatasetFacts:
    """Returns the facts of a dataset that is there.

    Raises:
        DataError: its description is damaged.
    """
    dataset.verify({DATASET})
    return described_facts(dataset.path)


def described_facts(folder: Path) -> DatasetFacts:
    """Returns the facts of the dataset in a folder as ``dataset.json`` counts them; its digest is not checked."""
    record = json.loads((folder / DATASET).read_text(encoding="utf-8"))
    splits = record["splits"]
    return DatasetFacts(
        vocabulary=record["vocabulary"],
        train_tokens=splits["train"]["tokens"],
        train_documents=splits["train"]["documents"],
        validation_tokens=splits["validation"]["tokens"] if "validation" in splits else None,
        counted=True,
        labels=tuple(record.get("labels", ())),
    )


def estimated_facts(recipe: Recipe, *, corpus_bytes: int | None) -> DatasetFacts:
    """Returns what can be said of a dataset that is not there yet.

    Args:
        recipe: the run.
        corpus_bytes: text in the corpus; None where it is not known, and so are the sizes of the splits.

    Raises:
        DataError: the pretrained tokenizer is not there, or is none.
    """
    vocabulary = asked_vocabulary(recipe)
    if corpus_bytes is None:
        return DatasetFacts(vocabulary=vocabulary)
    train_bytes = corpus_bytes * recipe.data.split.train
    return DatasetFacts(
        vocabulary=vocabulary,
        train_tokens=round(train_bytes / bytes_per_token(vocabulary)),
        train_documents=max(1, round(train_bytes / DOCUMENT_BYTES)),
        validation_tokens=round(corpus_bytes * recipe.data.split.validation / bytes_per_token(vocabulary)) or None,
    )


def bytes_per_token(vocabulary: int) -> float:
    """Returns the bytes that a token of a byte-level vocabulary stands for; texts differ by a factor of two."""
    return 1 + BYTES_PER_DOUBLING * max(0.0, log2(vocabulary / BYTES))


def asked_vocabulary(recipe: Recipe) -> int:
    """Returns the entries of the recipe's pretrained tokenizer, or those that its own is to have.

    Raises:
        DataError: there is no such file, or it is no tokenizer.json.
    """
    named = recipe.data.tokenizer.path
    if named is None:
        return recipe.data.tokenizer.vocabulary
    path = local_path(named)
    try:
        record = json.loads(regular(path).read_text(encoding="utf-8"))
        ids = [*record["model"]["vocab"].values(), *(token["id"] for token in record.get("added_tokens", ()))]
        return int(max(ids)) + 1
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError("no tokenizer.json with a vocabulary", where=path, seen=repr(error)) from error
