"""What a confusion matrix gives, against counting by definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.model.tasks.confusion import Confusion

LABELS = ("a", "b", "c")
PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=60)


def made(pairs) -> Confusion:
    confusion = Confusion.empty(LABELS)
    for part in (pairs[:5], pairs[5:]):
        true, predicted = (np.array([pair[side] for pair in part], np.int64) for side in (0, 1))
        confusion.add(true, predicted)
    return confusion


@given(PAIRS)
def test_every_number_is_what_its_definition_says(pairs):
    confusion = made(pairs)
    assert confusion.documents == len(pairs)
    assert confusion.accuracy == pytest.approx(sum(t == p for t, p in pairs) / len(pairs))
    commonest = max(range(3), key=lambda label: sum(t == label for t, _ in pairs))
    assert confusion.commonest_class_accuracy == sum(t == commonest for t, _ in pairs) / len(pairs)
    scores = []
    for number, row in enumerate(confusion.by_label()):
        hits = sum(t == p == number for t, p in pairs)
        misses = sum(t == number != p for t, p in pairs)
        false = sum(p == number != t for t, p in pairs)
        assert row["label"] == LABELS[number]
        assert row["documents"] == hits + misses
        assert row["precision"] == (hits / (hits + false) if hits + false else None)
        assert row["recall"] == (hits / (hits + misses) if hits + misses else None)
        if hits:
            harmonic = 2 / (1 / row["precision"] + 1 / row["recall"])
            assert row["f1"] == pytest.approx(harmonic)
        else:
            assert row["f1"] == (0.0 if misses + false else None)
        if row["f1"] is not None:
            scores.append(row["f1"])
    assert confusion.macro_f1 == pytest.approx(np.mean(scores))
    counts = [[sum(pair == (t, p) for pair in pairs) for p in range(3)] for t in range(3)]
    assert confusion.to_json() == {"labels": confusion.labels, "counts": counts}
