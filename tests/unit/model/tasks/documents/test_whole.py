"""Whole documents: frames, parts of sequences, and the order in which a split is measured."""

from __future__ import annotations

import pytest
import torch

from trainwright.artifact.shards import TokenDataset
from trainwright.model.tasks.classify import Classify
from trainwright.model.tasks.documents.whole import WholeDocuments, answered_here, listed
from trainwright.testing.artifacts import make_dataset


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    root = tmp_path_factory.mktemp("documents")
    dataset = TokenDataset.open(make_dataset(root, {"train": ["a", "bcd", "efghi"]}, labels={"train": ["x"] * 3}).path)
    return dataset.splits["train"]


def task(frame: tuple[int, int] | None, tokens: int = 4) -> Classify:
    return Classify(sequence_tokens=tokens, padding=0, frame=frame, labels=("x", "y"), class_of_label=(0,))


@pytest.mark.parametrize("frame", [None, (7, 8)])
def test_a_document_is_cut_or_padded_and_its_last_token_known(split, frame) -> None:
    batch = WholeDocuments(task=task(frame), split=split, batch_sequences=3).documents(torch.arange(3).numpy())
    ends = [0, *split.document_ends.tolist()]
    for number, (tokens, last) in enumerate(zip(batch["tokens"].tolist(), batch["last"].tolist(), strict=True)):
        ids = split.read(ends[number], ends[number + 1] - 1).tolist()
        whole = ids[:4] if frame is None else [7, *ids[:2], 8]
        assert tokens == whole + [0] * (4 - len(whole))
        assert last == len(whole) - 1


def test_exactly_one_part_of_a_sequence_answers() -> None:
    inputs = {"tokens": torch.arange(8).reshape(2, 4), "last": torch.tensor([1, 2]), "class": torch.tensor([0, 1])}
    parts = [task(None).part(inputs, places) for places in (torch.tensor([0, 3]), torch.tensor([1, 2]))]
    assert [answered_here(part).tolist() for part in parts] == [[False, False], [True, True]]
    assert parts[1]["tokens"].tolist() == [[1, 2], [5, 6]]
    assert parts[1]["last"].tolist() == [0, 1]
    assert answered_here(inputs).tolist() == [True, True]


def test_counts_in_words() -> None:
    assert listed({"train": 1200, "test": 1}) == "1,200 of train, 1 of test"
