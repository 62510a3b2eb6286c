"""What can be said of a dataset before it is there: from the bytes of its corpus, and from its tokenizer."""

from __future__ import annotations

import json
from math import log2

from trainwright.core.errors import DataError
from trainwright.core.paths import local_path, regular
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts

BYTES = 256
"""Tokens that a byte-level tokenizer has for the bytes themselves."""
BYTES_PER_DOUBLING = 0.4
"""Bytes by which a token grows with each doubling of the vocabulary: 4 bytes at 50,257 entries, as GPT-2 on English."""
DOCUMENT_BYTES = 500
"""Taken for a document where none was counted: sentences have 50 bytes, articles 5,000."""


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
