from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainwright.planner.search.ranking import pareto_front

NUMBER = st.integers(1, 6).map(float)


def betters(one, other):
    return one[0] <= other[0] and one[1] <= other[1] and one != other


@given(st.lists(st.tuples(NUMBER, NUMBER), max_size=25))
def test_the_front_is_what_nothing_betters(points):
    seconds, usd = [point[0] for point in points], [point[1] for point in points]
    front = pareto_front(seconds, usd)
    on = {point for point, on_front in zip(points, front, strict=True) if on_front}
    assert on == {point for point in points if not any(betters(other, point) for other in points)}
    # Of equal points one.
    assert front.sum() == len(on)


def test_what_has_no_price_or_no_end_is_not_on_it():
    assert list(pareto_front([1.0, 2.0, math.inf, 3.0], [math.nan, 5.0, 1.0, 4.0])) == [False, True, False, True]
    assert pareto_front([], []).dtype == np.bool_
