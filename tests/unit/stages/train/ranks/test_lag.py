"""Stragglers, of arrivals that a simulation of ranks makes."""

from __future__ import annotations

import random

from trainwright.stages.train.ranks.lag import LEAST, Lag


def arrivals(works: list[float], collectives: int, *, seed: int = 1) -> dict[int, dict[str, int]]:
    """Ranks that compute for about so long, then wait for each other, again and again."""
    rng = random.Random(seed)
    left, said = 0.0, {rank: {} for rank in range(len(works))}
    for number in range(collectives):
        came = [left + work * rng.uniform(0.8, 1.2) for work in works]
        for rank, when in enumerate(came):
            said[rank][f"0/{number}"] = int(when * 1e9)
        left = max(came)
    return said


def test_a_rank_three_times_slower_is_named_with_its_ratio() -> None:
    (straggler,) = Lag(range(4), 2.0).add(arrivals([1, 1, 3, 1], LEAST + 1)).items()
    assert straggler[0] == 2
    assert 2.5 < straggler[1] < 3.5


def test_equal_ranks_and_few_collectives_are_no_news() -> None:
    assert Lag(range(4), 2.0).add(arrivals([1, 1, 1, 1], 3 * LEAST)) == {}
    assert Lag(range(4), 2.0).add(arrivals([1, 1, 3, 1], LEAST // 2)) == {}


def test_moments_are_too_short_to_tell() -> None:
    short = [each / 100 for each in (1, 1, 3, 1)]
    assert Lag(range(4), 2.0).add(arrivals(short, LEAST + 1)) == {}
    (straggler,) = Lag(range(4), 2.0).add(arrivals(short, 3 * LEAST))
    assert straggler == 2


def test_what_is_said_twice_counts_once() -> None:
    lag, said = Lag(range(2), 2.0), arrivals([1, 5], LEAST // 2)
    assert not any(lag.add(said) for _ in range(5))


def test_ranks_that_have_not_spoken_are_waited_for() -> None:
    said = arrivals([1, 3], 2 * LEAST)
    assert Lag(range(2), 2.0).add({0: said[0]}) == {}
