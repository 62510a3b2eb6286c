"""The calibration error against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from trainwright.model.tasks.calibration import BINS, Calibration


def test_it_is_the_mean_gap_between_being_sure_and_being_right() -> None:
    calibration = Calibration()
    # Bin (8/15, 9/15]: two answers, sure 0.58 and 0.56, one of them right: |1 - 1.14|. Bin (14/15, 1]: |2 - 1.97|.
    calibration.add(np.array([0.58, 0.99]), np.array([True, True]))
    calibration.add(np.array([0.56, 0.98]), np.array([False, True]))
    assert calibration.error == pytest.approx((abs(1 - 1.14) + abs(2 - 1.97)) / 4)
    rows = calibration.curve()["rows"]
    assert [row["answers"] for row in rows] == [2, 2]
    assert [row["accuracy"] for row in rows] == [0.5, 1.0]
    assert rows[0]["confidence"] == pytest.approx(0.57)


def test_an_answer_on_a_border_is_in_the_bin_below_it() -> None:
    calibration = Calibration()
    calibration.add(np.array([1 / BINS, 1.0]), np.array([True, False]))
    assert calibration.counts.tolist() == [1] + [0] * (BINS - 2) + [1]


def test_an_answer_that_is_as_often_right_as_sure_has_no_error() -> None:
    calibration = Calibration()
    calibration.add(np.full(4, 0.75), np.array([True, True, True, False]))
    assert calibration.error == 0.0
