"""Ranks against a search by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from trainwright.model.tasks.embeddings.search import ANCHORS_AT_ONCE, search


def test_ranks_are_those_of_a_search_over_the_different_texts_of_all_records() -> None:
    random = np.random.default_rng(0)
    records = ANCHORS_AT_ONCE + 20
    made = random.normal(size=(records, 3, 6)).astype(np.float32)
    made /= np.linalg.norm(made, axis=-1, keepdims=True)
    keys = np.arange(records * 3).reshape(records, 3)
    made[7, 1], keys[7, 1] = made[3, 1], keys[3, 1]  # one text that belongs to two anchors
    made[9, 2], keys[9, 2] = made[3, 1], keys[3, 1]
    found = search(made, keys)
    texts = {int(key): made[row, text + 1] for row in range(records) for text, key in enumerate(keys[row, 1:])}
    assert found.candidates == len(texts) == 2 * records - 2
    ranks = []
    for row in range(records):
        scores = {key: round(float(made[row, 0] @ vector), 6) for key, vector in texts.items()}
        own = scores.pop(int(keys[row, 1]))
        ranks.append(1 + sum(each > own for each in scores.values()) + sum(each == own for each in scores.values()) / 2)
    assert found.ranks == pytest.approx(np.array(ranks))
    for first in (1, 10):
        assert found.recall(first) == np.mean(np.array(ranks) <= first)
    assert found.reciprocal_rank == pytest.approx(np.mean(1 / np.array(ranks)))
    rows = found.curve()["rows"]
    assert (rows[0]["first"], rows[0]["recall"]) == (1, found.recall(1))
    assert (rows[-1]["first"], rows[-1]["recall"]) == (found.candidates, 1.0)
    assert found.hardest()[0] == {"pair": int(np.argmax(ranks)), "rank": max(ranks)}


def test_equal_vectors_are_as_near_and_of_one_text_the_first_is_found() -> None:
    made = np.ones((4, 2, 1), np.float32)
    assert search(made, np.arange(8).reshape(4, 2)).ranks.tolist() == [2.5] * 4
    assert search(made[:2], np.array([[0, 9], [1, 9]])).ranks.tolist() == [1.0, 1.0]
