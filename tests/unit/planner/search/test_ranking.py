from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fixtures.recommend import option
from trainwright.planner.search.ranking import PATIENCE_S, Goals, pareto_front

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


def test_by_how_much_a_way_misses_its_goals():
    way = option(seconds=300.0, usd=30.0)
    assert (
        Goals(deadline_s=100.0, budget_usd=20.0).missed_by(way) == "3.00 times the deadline and 1.50 times the budget"
    )
    assert Goals(deadline_s=300.0).missed_by(way) == "" == Goals().missed_by(way)
    # What is there already may run as long as it takes.
    assert Goals().missed_by(option(seconds=2 * PATIENCE_S, usd=1.0)) == ""
