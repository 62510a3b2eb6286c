"""DualPipe's order against the paper's table, and against what any schedule must keep to."""

from collections import Counter
from itertools import accumulate

import numpy as np
import pytest

from trainwright.planner.forecast.time.dualpipe import order, play

SHAPES = [(p, m) for p in (2, 4, 8, 16) for m in (2 * p, 2 * p + 2, 6 * p)]


def times(stages, forward=1.0, backward=1.0, weight=1.0, together=None):
    ones = np.ones(stages)
    both = forward + backward + weight if together is None else together
    return np.stack([forward * ones, backward * ones, weight * ones]), both * np.ones((stages, stages))


@pytest.mark.parametrize(("stages", "micro_batches"), SHAPES)
def test_bubble_and_memory_are_the_papers(stages, micro_batches):
    """arXiv 2412.19437, table 2: (PP/2 - 1)(F&B + B - 3W) idle, B the whole backward pass, and PP + 1 micro batches."""
    for weight in (1.0, 0.5):
        ends = play(*times(stages, weight=weight), micro_batches)
        idle = max(ends) - micro_batches * (2 + weight)
        assert idle == pytest.approx((stages / 2 - 1) * ((2 + weight) + (1 + weight) - 3 * weight))
    for rank in range(stages):
        kinds = [[kind for kind, _ in chunk] for chunk in order(stages, micro_batches, rank)]
        steps = [sum((kind == "F") - (kind in "BW") for kind in chunk) for chunk in kinds]
        # Of a pair the forward pass begins while the other's micro batch is still there.
        assert (
            max(alive + ("F" in chunk and "B" in chunk) for alive, chunk in zip(accumulate(steps), kinds, strict=True))
            == stages + 1
        )


def test_of_unequal_passes_the_bubble_is_near_to_the_papers():
    """The table's formula is exact where forward passes take as long as those for inputs; else chunks wait."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(100):
        forward, backward, weight = rng.uniform(0.8, 1.2, 3)
        ends = play(*times(8, forward, backward, weight), 40)
        ratios.append((max(ends) - 40 * (forward + backward + weight)) / (3 * (forward + 2 * backward - weight)))
    assert np.median(ratios) == pytest.approx(1, abs=0.05)
    assert np.max(np.abs(np.log(ratios))) < 0.35


def test_it_idles_less_than_a_third_of_what_one_direction_does():
    assert (max(play(*times(8), 20)) - 20 * 3) / ((8 - 1) * 3) < 1 / 3


@pytest.mark.parametrize(("stages", "micro_batches"), SHAPES)
def test_every_rank_runs_every_pass_of_both_directions_once(stages, micro_batches):
    for rank in range(stages):
        passes = [each for chunk in order(stages, micro_batches, rank) for each in chunk]
        kinds = Counter(kind for kind, _ in passes)
        for direction in (0, 1):
            count = Counter(kind for kind, way in passes if way == direction and kind != "W")
            assert count["F"] == count["B"] + count["I"] == micro_batches // 2
        assert kinds["W"] == kinds["I"]
        opened = np.cumsum([(kind == "I") - (kind == "W") for kind, _ in passes])
        assert opened.min() >= 0  # weights come after their inputs


def test_ranks_mirror_each_other():
    mirrored = [
        tuple((kind, 1 - way) if kind != "W" else (kind, way) for kind, way in chunk) for chunk in order(8, 20, 1)
    ]
    assert order(8, 20, 6) == mirrored


def test_stages_take_their_own_time():
    """A pipeline of two: rank 0 has stage 0 of one direction and stage 1 of the other, so that both do the same."""
    forward, backward, weight = np.array([1.0, 3.0]), np.array([1.0, 2.0]), np.array([0.5, 1.0])
    both = forward[:, None] + backward + weight
    ends = play(np.stack([forward, backward, weight]), both, 8)
    busy = 4 * (1.0 + 1.5) + 4 * (3.0 + 3.0)
    assert busy <= max(ends) < 1.3 * busy


def test_what_pairs_hide_shortens_the_step():
    slow, fast = (play(*times(4, together=each), 32) for each in (3.0, 2.5))
    pairs = sum(len(chunk) == 2 for chunk in order(4, 32, 1))
    assert max(slow) - max(fast) == pytest.approx(0.5 * pairs, rel=0.05)


def test_a_hop_is_waited_for():
    assert max(play(*times(4), 16, hop_s=0.1)) > max(play(*times(4), 16))
