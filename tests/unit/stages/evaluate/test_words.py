"""What words alone reach: the same numbers as scikit-learn's own on the original texts."""

from __future__ import annotations

import random

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from tokenizers import Tokenizer

from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.stages.evaluate import words
from trainwright.testing.artifacts import make_dataset

LABELS = ("ham", "rye", "spam")


def labelled(seed: int, count: int):
    """Texts of which some words are commoner in one class than in another, so that not all can be told."""
    dice = random.Random(seed)
    labels = [dice.choice(LABELS) for _ in range(count)]
    texts = [" ".join(dice.choices(["größe", "def", "x", *LABELS, label], k=dice.randint(2, 9))) for label in labels]
    return texts, labels


SPLITS = {"train": labelled(1, 60), "validation": labelled(2, 25), "test": labelled(3, 20)}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    texts = {name: split[0] for name, split in SPLITS.items()}
    made = make_dataset(tmp_path_factory.mktemp("words"), texts, labels={n: split[1] for n, split in SPLITS.items()})
    return TokenDataset.open(made.path)


def measured(dataset, **documents):
    splits = {name: (dataset.splits[name], count) for name, count in documents.items()}
    tokenizer = Tokenizer.from_file(str(dataset.tokenizer_path))
    return words.by_words(dataset.splits["train"], splits, tokenizer, dataset.labels)


def expected(train, split):
    vectors = TfidfVectorizer(sublinear_tf=True)
    told = LogisticRegression(C=10, max_iter=1000).fit(vectors.fit_transform(train[0]), train[1])
    predicted = told.predict(vectors.transform(split[0]))
    return accuracy_score(split[1], predicted), f1_score(split[1], predicted, average="macro")


def test_scores_are_those_of_scikit_learn_on_the_original_texts(dataset) -> None:
    found = measured(dataset, validation=25, test=12)
    ((one,), (other,)) = found["validation"], found["test"]
    assert (one["accuracy"], one["macro_f1"]) == pytest.approx(expected(SPLITS["train"], SPLITS["validation"]))
    first = tuple(part[:12] for part in SPLITS["test"])
    assert (other["accuracy"], other["macro_f1"]) == pytest.approx(expected(SPLITS["train"], first))
    assert 0.4 < one["accuracy"] < 1
    assert (other["documents"], other["train_documents"]) == (12, 60)


def test_no_more_training_text_is_counted_than_the_limit(dataset, monkeypatch) -> None:
    sizes = [len(text.encode()) for text in SPLITS["train"][0]]
    monkeypatch.setattr(words, "TRAIN_BYTES", sum(sizes[:30]))
    ((one,),) = measured(dataset, validation=25).values()
    assert one["train_documents"] == 30
    first = tuple(part[:30] for part in SPLITS["train"])
    assert (one["accuracy"], one["macro_f1"]) == pytest.approx(expected(first, SPLITS["validation"]))


def test_one_class_alone_is_no_comparison(tmp_path) -> None:
    texts = {"train": ["a word", "another word"], "test": ["a third"]}
    made = make_dataset(tmp_path, texts, labels={"train": ["ham", "ham"], "test": ["ham"]})
    with pytest.raises(DataError, match="one class"):
        measured(TokenDataset.open(made.path), test=1)
