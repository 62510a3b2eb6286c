from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fixtures.recommend import option
from trainwright.hardware.prices.clouds import CONTRACT_S
from trainwright.planner.search.ranking import PATIENCE_S, Goals, pareto_front, ranked

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


def test_what_may_not_fit_comes_after_what_surely_does_and_is_named_where_it_is_much_cheaper():
    risky = option(seconds=90.0, usd=10.0, unsure=True)
    sure, fast = option(seconds=100.0, usd=12.0), option(seconds=50.0, usd=40.0)
    answer = ranked([risky, fast, sure], (), Goals())
    assert [each.usd for each in answer.options] == [12.0, 40.0, 10.0]
    assert [(name, each.usd) for name, each in answer.headlines] == [
        ("cheapest and fastest within 1.25 times that", 12.0),
        ("fastest", 40.0),
        ("cheaper if it fits", 10.0),
    ]
    # A few percent are no reason to risk the run.
    near = ranked([option(seconds=46.0, usd=11.5, unsure=True), fast, sure], (), Goals())
    assert not any(each.unsure for _, each in near.headlines)
    quick = ranked([option(seconds=40.0, usd=50.0, unsure=True), fast, sure], (), Goals())
    assert dict(quick.headlines)["faster if it fits"].seconds == 40.0
    alone = ranked([risky, option(seconds=30.0, usd=90.0, unsure=True)], (), Goals())
    assert [(name, each.usd) for name, each in alone.headlines] == [
        ("cheapest and fastest within 1.25 times that", 10.0),
        ("fastest", 90.0),
    ]


def test_a_contract_that_is_paid_for_nothing_is_the_fastest_where_a_budget_asks_for_it_or_nothing_else_is_in_time():
    hour, month = 3600.0, CONTRACT_S
    plain = option(seconds=100 * hour, usd=100.0, billed_s=100 * hour)
    contract = option(seconds=hour, usd=1e5, billed_s=month)
    used = option(seconds=0.6 * month, usd=900.0, billed_s=month)

    def fastest(options, **goals):
        return dict(ranked(options, (), Goals(**goals)).headlines)

    assert fastest([plain, contract], budget_usd=1e6)["fastest"].usd == 1e5
    (both,) = fastest([plain, contract], deadline_s=month).values()
    assert both.usd == 100.0 and ranked([plain, contract], (), Goals(deadline_s=month)).options[-1].usd == 1e5
    assert [each.usd for each in fastest([plain, contract], deadline_s=2 * hour).values()] == [1e5]
    slow = replace(plain, seconds=0.9 * month, billed_s=0.9 * month)
    assert fastest([slow, used], deadline_s=month)["fastest"].usd == 900.0, "most of that one is used"


def test_goals_are_met_first_by_what_surely_fits():
    risky, sure = option(seconds=40.0, usd=10.0, unsure=True), option(seconds=50.0, usd=12.0)
    late, dear = replace(risky, seconds=400.0), replace(sure, usd=120.0, seconds=500.0)
    for goals in (Goals(deadline_s=60.0), Goals(budget_usd=20.0)):
        assert not ranked([risky, sure], (), goals).options[0].unsure
        assert ranked([risky, dear], (), goals).options[0].unsure, "it alone meets them"
    missed = ranked([late, dear], (), Goals(deadline_s=60.0))
    assert not missed.options and [each.unsure for each in missed.closest] == [False]
    own = [replace(each, provider="own") for each in (late, dear)]
    assert not ranked(own, (), Goals(deadline_s=60.0)).own[0].unsure


def test_within_a_budget_the_cheapest_of_what_is_about_as_fast_comes_first():
    fast, near, slow = option(seconds=100.0, usd=84.0), option(seconds=103.0, usd=27.0), option(seconds=200.0, usd=15.0)
    answer = ranked([fast, near, slow], (), Goals(budget_usd=100.0))
    assert [each.usd for each in answer.options] == [27.0, 84.0, 15.0]
    assert ranked([fast, near, slow], (), Goals(budget_usd=20.0)).options[0].usd == 15.0


def test_beside_what_costs_nothing_what_is_twice_as_fast_is_named():
    own, even, fast = option(seconds=100.0, usd=0.0), option(seconds=90.0, usd=10.0), option(seconds=49.0, usd=30.0)
    best = option(seconds=10.0, usd=500.0)
    named = dict(ranked([own, even, fast, best], (), Goals()).headlines)
    assert {name: each.usd for name, each in named.items()} == {
        "cheapest": 0.0,
        "cheapest that is 2 times as fast": 30.0,
        "fastest": 500.0,
    }
    assert list(dict(ranked([own, even], (), Goals()).headlines)) == ["cheapest", "fastest"]


def test_the_best_use_of_what_is_there_is_what_the_budget_names_first():
    fast, near = (option(seconds=seconds, usd=usd, provider="own") for seconds, usd in ((100.0, 84.0), (103.0, 27.0)))
    answer = ranked([fast, near], (), Goals(budget_usd=100.0))
    assert answer.own[0].usd == answer.options[0].usd == 27.0


def test_a_budget_alone_buys_no_run_that_outlives_machines_where_a_shorter_one_is_within_it():
    years, days = option(seconds=400 * 86400.0, usd=10.0), option(seconds=86400.0, usd=90.0)
    assert [each.usd for each in ranked([years, days], (), Goals(budget_usd=100.0)).options] == [90.0]
    assert [each.usd for each in ranked([years, days], (), Goals(budget_usd=20.0)).options] == [10.0]
