"""Errors of predicted numbers: worked out by hand, and as scikit-learn computes them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trainwright.model.tasks.documents.errors import Errors


def test_errors_worked_out_by_hand() -> None:
    errors = Errors(true=np.array([1.0, 2.0, 3.0, 6.0]), predicted=np.array([1.0, 4.0, 2.0, 6.0]))
    assert (errors.mse, errors.mae) == (5 / 4, 3 / 4)
    assert errors.r2 == pytest.approx(1 - 5 / 14)  # about the mean 3 the true numbers are off by 4 + 1 + 0 + 9
    assert errors.furthest()[:2] == [
        {"document": 1, "true": 2.0, "predicted": 4.0},
        {"document": 2, "true": 3.0, "predicted": 2.0},
    ]


def test_they_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    dice = np.random.default_rng(3)
    true, predicted = dice.normal(1e4, 3, 57), dice.normal(1e4, 3, 57)
    errors = Errors(true=true, predicted=predicted)
    assert errors.mse == pytest.approx(metrics.mean_squared_error(true, predicted), rel=1e-12)
    assert errors.mae == pytest.approx(metrics.mean_absolute_error(true, predicted), rel=1e-12)
    assert errors.r2 == pytest.approx(metrics.r2_score(true, predicted), rel=1e-12)


@pytest.mark.parametrize("true", [[2.0], [2.0, 2.0]])
def test_where_true_numbers_do_not_differ_nobody_knows_r2(true) -> None:
    assert math.isnan(Errors(true=np.array(true), predicted=np.zeros(len(true))).r2)


def test_the_picture_is_in_the_order_of_true_numbers_and_has_few_points() -> None:
    true = np.array([3.0, 1.0, 2.0])
    picture = Errors(true=true, predicted=true + 1).picture()
    assert picture["rows"] == [{"true": n, "predicted": n + 1} for n in (1.0, 2.0, 3.0)]
    many = np.arange(5000.0)
    assert 200 <= len(Errors(true=many, predicted=many).picture()["rows"]) <= 210
