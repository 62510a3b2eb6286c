"""What a classifier of texts is held against: words alone, by TF-IDF and logistic regression of scikit-learn.

It is trained on the train split and measured on the documents that the model was measured on. A network that does not
reach it has learned less than which words a class uses (Wang and Manning, "Baselines and bigrams: simple, good
sentiment and topic classification", 2012). Loaded only where scikit-learn is installed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer

from trainwright.artifact.shards import TokenSplit
from trainwright.core.errors import DataError
from trainwright.model.tasks.confusion import Confusion

TRAIN_BYTES = 32 << 20
"""Training text that is counted at most, the first documents of the split: bounds memory and time."""
INVERSE_REGULARISATION = 10.0
"""``C``: rows of TF-IDF have length 1, and scikit-learn's default of 1 learns too little from so short ones."""
ITERATIONS = 1000
COEFFICIENTS = 2_000_000
"""Classes times words, at most: the commonest words are taken. The solver holds some 27 numbers of 8 bytes for each
(measured with 100 classes and 39,736 words: 860 MB), which is half a gigabyte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """Macro F1 and accuracy on ``documents`` of a split; ``train_documents`` it has learned from."""

    name: str
    macro_f1: float
    accuracy: float
    documents: int
    train_documents: int
    seconds: float


def by_words(
    train: TokenSplit, splits: Mapping[str, tuple[TokenSplit, int]], tokenizer: Tokenizer, labels: tuple[str, ...]
) -> dict[str, list[dict[str, Any]]]:
    """Returns for each split what words reach on its first documents.

    Args:
        train: its documents are learned from.
        splits: each with how many of its documents are measured.
        tokenizer: turns tokens into text; both see the text that it gives back.
        labels: names of the dataset's labels, by number.

    Raises:
        DataError: the documents of the train split have one label, or no word at all.
    """
    started = time.perf_counter()
    texts = list(_texts(train, tokenizer, train.documents, TRAIN_BYTES))
    answers = _numbers(train, len(texts))
    if (classes := len(np.unique(answers))) < 2:
        raise DataError("the documents to learn from have one class")
    vectors = TfidfVectorizer(sublinear_tf=True, max_features=max(1, COEFFICIENTS // classes))
    try:
        rows = vectors.fit_transform(texts)
    except ValueError as error:  # what scikit-learn says of an empty vocabulary
        raise DataError("the documents to learn from have no words") from error
    told = LogisticRegression(C=INVERSE_REGULARISATION, max_iter=ITERATIONS)
    told.fit(rows, answers)
    learned_s = time.perf_counter() - started
    found = {}
    for name, (split, documents) in splits.items():
        started = time.perf_counter()
        confusion = Confusion.empty(labels)
        predicted = told.predict(vectors.transform(_texts(split, tokenizer, documents)))
        confusion.add(_numbers(split, documents), predicted)
        words = Words(
            name="TF-IDF, logistic regression",
            macro_f1=confusion.macro_f1,
            accuracy=confusion.accuracy,
            documents=documents,
            train_documents=len(texts),
            seconds=learned_s + time.perf_counter() - started,
        )
        found[name] = [asdict(words)]
    return found


def _numbers(split: TokenSplit, documents: int) -> NDArray[np.int64]:
    return np.asarray(split.document_labels[:documents], np.int64)


def _texts(split: TokenSplit, tokenizer: Tokenizer, documents: int, limit_bytes: int | None = None) -> Iterator[str]:
    """Yields the text of each document, as long as all together stay within a limit; at least one."""
    size = start = 0
    for stop in islice(split.document_ends.astype(int).tolist(), documents):
        text = tokenizer.decode(split.read(start, stop - 1).tolist(), skip_special_tokens=True)
        size += len(text.encode())
        if start and limit_bytes is not None and size > limit_bytes:
            return
        yield text
        start = stop
