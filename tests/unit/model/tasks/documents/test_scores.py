"""Scores of several labels: worked out by hand, and as scikit-learn has them."""

from __future__ import annotations

import numpy as np
import pytest

from trainwright.model.tasks.documents.scores import Scores, average_precision, roc_area

HAND = Scores(
    labels=("a", "b", "c"),
    has=np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]], bool),
    odds=np.array([[2.0, -1, -1], [-0.5, 3, -1], [1, 0.5, -2], [-1, -3, -1]]),
)
"""Of a: one of two found, one of two right, and the second below one without it. Of b: all right. Of c: nothing."""


def test_hand_worked_scores() -> None:
    a, b, c = HAND.by_label()
    assert a == {
        "label": "a",
        "documents": 2,
        "precision": 0.5,
        "recall": 0.5,
        "f1": 0.5,
        "roc_area": 0.75,
        "pr_area": pytest.approx((1 / 1 + 2 / 3) / 2),
    }
    assert (b["precision"], b["recall"], b["f1"], b["roc_area"], b["pr_area"]) == (1, 1, 1, 1, 1)
    assert c == {"label": "c", "documents": 0} | dict.fromkeys(("precision", "recall", "f1", "roc_area", "pr_area"))
    micro, macro = HAND.averages()
    assert micro == {"average": "micro", "precision": 3 / 4, "recall": 3 / 4, "f1": 3 / 4}
    assert macro == {"average": "macro", "precision": 0.75, "recall": 0.75, "f1": 0.75}
    assert HAND.subset_accuracy == 2 / 4, "the first and the last document"
    assert HAND.commonest_set_accuracy == 1 / 4
    assert HAND.headline()["roc_area"] == (0.75 + 1) / 2


def test_a_tie_is_half_right_and_no_order_of_ties_matters() -> None:
    has, odds = np.array([1, 0, 1, 0], bool), np.array([1.0, 1.0, 0.0, -1.0])
    assert roc_area(has, odds) == (0.5 + 1 + 0 + 1) / 4
    assert average_precision(has, odds) == (1 / 2 + 2 / 3) / 2
    assert average_precision(has[[1, 0, 2, 3]], odds) == average_precision(has, odds)


def test_rounding_is_no_rank() -> None:
    has = np.array([1, 0], bool)
    assert roc_area(has, np.array([0.3, 0.3000001])) == roc_area(has, np.array([0.3000001, 0.3])) == 0.5


def test_nothing_to_rank_has_no_area_and_no_mean() -> None:
    assert roc_area(np.ones(3, bool), np.arange(3.0)) is None
    assert average_precision(np.zeros(3, bool), np.arange(3.0)) is None
    none = Scores(labels=("a",), has=np.zeros((2, 1), bool), odds=np.full((2, 1), -1.0))
    assert all(np.isnan(value) for value in none.headline().values())
    assert none.curve()["rows"] == [{"recall": 0.0, "precision": 1.0}]


def test_they_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(3)
    has, odds = random.random((300, 4)) < 0.4, random.normal(size=(300, 4)).round(1)  # with many ties
    scores = Scores(labels=tuple("abcd"), has=has, odds=odds)
    made = scores.headline() | {"subset": scores.subset_accuracy}
    assert made == pytest.approx(
        {
            "micro_f1": metrics.f1_score(has, odds > 0, average="micro"),
            "macro_f1": metrics.f1_score(has, odds > 0, average="macro"),
            "roc_area": metrics.roc_auc_score(has, odds, average="macro"),
            "pr_area": metrics.average_precision_score(has, odds, average="macro"),
            "subset": metrics.accuracy_score(has, odds > 0),
        },
        rel=1e-12,
    )
    precision, recall, _ = metrics.precision_recall_curve(has.ravel(), odds.ravel())
    points = {(row["recall"], row["precision"]) for row in scores.curve()["rows"]}
    assert points == set(zip(recall.tolist(), precision.tolist(), strict=True)), "ends at recall 0, precision 1"
