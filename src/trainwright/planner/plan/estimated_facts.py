"""What can be said of a dataset before it is there: from the bytes of its corpus, and from its tokenizer."""

from __future__ import annotations

import json
from math import log2

from trainwright.core.errors import DataError
from trainwright.core.paths import local_path, regular
from trainwright.core.units import parse_duration
from trainwright.planner.plan.workload import validation_tokens
from trainwright.spec.plan import Assumption, Origin
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts

BYTES = 256
"""Tokens that a byte-level tokenizer has for the bytes themselves."""
BYTES_PER_DOUBLING = 0.4
"""Bytes by which a token grows with each doubling of the vocabulary: 4 bytes at 50,257 entries, as GPT-2 on English."""
DOCUMENT_BYTES = 500
"""Taken for a document where none was counted: sentences have 50 bytes, articles 5,000."""
TOKENS_DEVIATION = 0.27
"""Standard deviation of the logarithm of an epoch's true over its estimated tokens: 0.65 to 1.15 times as many were
counted in Python, English and Chinese with vocabularies of 512 to 32,768 (docs/lab/log.md)."""
RECORDS_DEVIATION = 0.85
"""The same of records: 0.26 to 1.15 times as many were counted."""
DOCUMENTS_DEVIATION = 1.8
"""The same of documents: a mean of 26 bytes to 9.7 kB is within the range."""


UNKNOWN_SPLIT = "unknown before the data are there; train.validation.tokens bounds it"
IMAGES_DEVIATION = 0.1
"""The same of images: as many as files, less those that are broken or equal to others."""


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
    if recipe.data.images is not None:
        return _images(recipe, corpus_bytes / recipe.data.images.values)
    return DatasetFacts(
        vocabulary=vocabulary,
        train_tokens=round(train_bytes / bytes_per_token(vocabulary)),
        train_documents=max(1, round(train_bytes / DOCUMENT_BYTES)),
        validation_tokens=round(corpus_bytes * recipe.data.split.validation / bytes_per_token(vocabulary)) or None,
    )


def _images(recipe: Recipe, count: float) -> DatasetFacts:
    """Returns what so many files of images are: of each split its share, unless some are broken or equal."""
    shares = recipe.data.split
    return DatasetFacts(
        vocabulary=asked_vocabulary(recipe),
        train_tokens=round(count * shares.train) * recipe.train.sequence_tokens,
        train_documents=max(1, round(count * shares.train)),
        validation_tokens=round(count * shares.validation) * recipe.train.sequence_tokens or None,
        validation_documents=round(count * shares.validation) or None,
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


def deviation(recipe: Recipe, facts: DatasetFacts) -> float:
    """Returns the standard deviation of the logarithm of the run's true over its planned length."""
    if facts.counted or parse_duration(recipe.train.duration).unit != "epochs":
        return 0.0
    if recipe.data.images is not None:
        return IMAGES_DEVIATION
    if recipe.task.kind.reads == "documents":
        return DOCUMENTS_DEVIATION
    plain = all(source.plain_text for source in recipe.data.sources)
    return TOKENS_DEVIATION if plain else RECORDS_DEVIATION


def dataset_assumptions(recipe: Recipe, facts: DatasetFacts) -> tuple[Assumption, ...]:
    """Returns what the workload rests on: counted, from the recipe, or taken for want of a dataset."""
    source = "the dataset" if facts.counted else "data.tokenizer"
    vocabulary = Assumption("vocabulary", float(facts.vocabulary), "entries", "recipe", source, key="vocabulary")
    entries = [_validation(recipe, facts), *(() if recipe.data.images else (vocabulary,))]
    if parse_duration(recipe.train.duration).unit == "epochs" and facts.train_tokens is not None:
        tokens = recipe.epoch_tokens(tokens=facts.train_tokens, documents=facts.train_documents or 0)
        origin: Origin = "recipe" if facts.counted else "default"
        entries.append(
            Assumption("tokens of an epoch", float(tokens), "tokens", origin, _origin(recipe, facts), key="epoch")
        )
    return tuple(entries)


def _validation(recipe: Recipe, facts: DatasetFacts) -> Assumption:
    count, asked = validation_tokens(recipe, facts), recipe.train.validation.tokens
    origin: Origin = "recipe" if count == asked or (facts.counted and facts.validation_tokens) else "default"
    guess = _origin(recipe, facts) if facts.validation_tokens else UNKNOWN_SPLIT
    source = "" if count == asked else guess
    return Assumption("tokens of a validation", float(count), "tokens", origin, source, key="validation")


def _origin(recipe: Recipe, facts: DatasetFacts) -> str:
    """Returns the source of the sizes of splits, in words."""
    if recipe.data.images is not None:
        return "the dataset" if facts.counted else "estimated: as many images as files"
    guess = f"estimated: the corpus's bytes, {bytes_per_token(facts.vocabulary):.2f} of them in a token"
    return "the dataset" if facts.counted else guess
