from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fixtures.recommend import option
from trainwright.planner.search.chances import chance_in_time, chance_of, surely_in_time
from trainwright.planner.search.ranking import Goals, ranked
from trainwright.spec.device import Price


def test_the_range_of_nine_in_ten_leaves_one_in_twenty_on_either_side():
    way = option(seconds=100.0, usd=1.0)
    chances = [chance_in_time(way, each) for each in (50.0, 100.0, 200.0)]
    assert chances == pytest.approx([0.05, 0.5, 0.95], abs=1e-3)


def test_the_chance_is_that_of_times_drawn_from_the_range():
    way, draws = option(seconds=100.0, usd=1.0, high_s=170.0), np.random.default_rng(0).normal(size=200_000)
    times = 100.0 * np.exp(draws * np.log(170.0 / 100.0) / 1.645)
    for deadline in (110.0, 140.0, 250.0):
        assert chance_in_time(way, deadline) == pytest.approx(np.mean(times <= deadline), abs=0.005)


def test_a_time_without_a_range_is_in_time_or_not():
    way = option(seconds=100.0, usd=1.0, low_s=100.0, high_s=100.0)
    assert (chance_in_time(way, 101.0), chance_in_time(way, 99.0)) == (1.0, 0.0)


def test_the_next_that_surely_is_in_time_has_a_price_without_doubt():
    doubtful = Price(
        usd_per_device_hour=1.0,
        kind="spot",
        provider="AWS",
        region="x",
        as_of="2026-11-01",
        source="a list",
        doubt="too low",
    )
    slow, fast = option(seconds=100.0, usd=1.0), option(seconds=40.0, usd=5.0)
    others = (replace(fast, usd=None), replace(fast, price=doubtful), replace(fast, unsure=True))
    assert surely_in_time([slow, *others, fast], 110.0) == fast
    assert surely_in_time([slow, *others], 110.0) is None


def test_the_chance_of_an_answer_is_that_of_its_best_way():
    slow, fast = option(seconds=100.0, usd=1.0), option(seconds=40.0, usd=5.0)
    assert chance_of(ranked([slow, fast], (), Goals(deadline_s=100.0))) == pytest.approx(0.5)
    assert chance_of(ranked([slow, fast], (), Goals())) is None
    assert chance_of(ranked([slow, fast], (), Goals(deadline_s=1.0))) is None
