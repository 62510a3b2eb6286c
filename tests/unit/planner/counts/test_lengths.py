import math

import numpy as np
import pytest

from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.lengths import longest_of, padded_lengths, padded_tokens, spread_of
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(
    sequence_tokens=2048,
    batch_tokens=64 * 2048,
    steps=1,
    precision="bf16",
    optimizer="adamw",
    example_tokens=200,
    example_spread=0.6,
)


def drawn(groups, draws, *, mean=200.0, longest=2048.0, spread=0.6):
    """The longest of many groups of lengths, as a random number generator draws them."""
    lengths = np.random.default_rng(7).lognormal(math.log(mean) - spread**2 / 2, spread, (groups, draws))
    return np.minimum(lengths, longest).max(axis=1)


@pytest.mark.parametrize("draws", [1, 2, 8, 64])
def test_the_longest_of_several_is_what_random_draws_have(draws):
    expected = longest_of(float(draws), mean=200.0, longest=2048.0, spread=0.6)
    assert expected == pytest.approx(drawn(200_000 // draws, draws).mean(), rel=0.02)


def test_the_spread_puts_the_longest_of_all_where_it_is():
    spread = spread_of(200, 2048, 50_000)
    lengths = np.random.default_rng(3).lognormal(math.log(200) - spread**2 / 2, spread, (200, 50_000))
    assert lengths.mean() == pytest.approx(200, rel=0.01)
    assert np.median(lengths.max(axis=1)) == pytest.approx(2048, rel=0.06)


def test_examples_of_one_length_have_no_spread():
    assert spread_of(512, 512, 1000) == 0
    assert longest_of(8.0, mean=512.0, longest=512.0, spread=0.0) == 512


def test_no_example_is_longer_than_the_longest():
    assert spread_of(10, 100_000, 100) == spread_of(10, 1_000_000, 100)  # as wide as so few examples can be
    assert longest_of(10_000.0, mean=200.0, longest=512.0, spread=1.0) == pytest.approx(512, rel=0.01)


def test_ranks_wait_for_the_longest_micro_batch():
    """FSDP meets in each of eight micro batches, DDP once a step: the sums of eight draws differ by a root less."""
    plans = [
        ParallelPlan(micro_batch_sequences=2),
        ParallelPlan(micro_batch_sequences=2, dp_shard=4),
        ParallelPlan(micro_batch_sequences=2, dp_replicate=4),
        ParallelPlan(micro_batch_sequences=8),
    ]
    alone, sharded, replicated, more = padded_tokens(WORK, Layouts.of(plans, ["none"] * 4, WORK))
    steps = drawn(20_000 * 4, 2).reshape(4, -1, 8)
    assert alone == pytest.approx(steps.mean(), rel=0.02)
    assert sharded == more == pytest.approx(steps.max(axis=0).mean(), rel=0.02)
    assert replicated == pytest.approx(steps.mean(axis=2).max(axis=0).mean(), rel=0.04)


def test_full_sequences_are_not_padded():
    full = Workload(sequence_tokens=2048, batch_tokens=4096, steps=1, precision="bf16", optimizer="adamw")
    assert padded_tokens(full, Layouts.of([ParallelPlan()], ["none"], full)).tolist() == [2048]


def test_a_rank_computes_its_own_padding_and_waits_for_the_longest():
    plans = [ParallelPlan(dp_shard=size, zero_stage=3, micro_batch_sequences=2) for size in (2, 8)]
    layouts = Layouts.of(plans, ["none"] * 2, WORK)
    own, slowest = padded_lengths(WORK, layouts)
    assert own[0] == own[1] and slowest[0] < slowest[1]
    assert 200 < own[0] < slowest[0]
    assert own[0] == pytest.approx(drawn(200_000, 2).mean(), rel=0.01)
    assert slowest[1] == pytest.approx(drawn(50_000, 16).mean(), rel=0.01)
    assert (padded_tokens(WORK, layouts) == np.round(slowest)).all()  # ZeRO-3 waits at each micro batch
