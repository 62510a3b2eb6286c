"""What a rank has of a pass, against counts by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from trainwright.planner.counts.saved.micro_batch import MicroBatch


def batch_of(**more: object) -> MicroBatch:
    return MicroBatch(sequences=3, sequence_tokens=64, dtype="bf16", device_kind="cpu", **more)


def test_ranks_have_parts_of_the_tokens():
    assert (batch_of().tokens, batch_of(cp=2).tokens) == (192, 96)
    assert (batch_of(tp=2).stream_tokens, batch_of(tp=2, by_tokens=False).stream_tokens) == (96, 192)
    assert batch_of().element_bytes == 2


@pytest.mark.parametrize("cp", [2, 4])
def test_queries_are_mixed_with_the_keys_up_to_the_end_of_their_stretch(cp):
    """Stretch i of 2 cp, counted from 0, sees i + 1 stretches; a rank has two of them."""
    for rank in range(cp):
        stretches = rank, 2 * cp - 1 - rank
        seen = Fraction(sum(each + 1 for each in stretches), 2 * (2 * cp))
        assert batch_of(cp=cp).seen == float(seen)
    assert batch_of(cp=cp, context="ulysses").seen == 1.0


def test_short_sequences_make_scores_on_a_processor_alone():
    assert batch_of().makes_scores
    assert not MicroBatch(sequences=3, sequence_tokens=64, dtype="bf16", device_kind="cuda").makes_scores
