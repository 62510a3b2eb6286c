"""Which attention makes scores, and how losses and heads are cut."""

from __future__ import annotations

import pytest

from trainwright.planner.counts.pieces import (
    LOGITS_CHUNK_MIN_TOKENS,
    WHOLE_SCORES_TOKENS,
    chunk_tokens,
    loss_rows,
    makes_scores,
    padded_rows,
)


@pytest.mark.parametrize("kernel", ["sdpa", "flex", "fa3"])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_fused_kernels_make_no_scores(kernel, kind) -> None:
    assert not makes_scores(kernel, device_kind=kind, sequence_tokens=8)


def test_left_alone_a_processor_makes_scores_of_short_sequences() -> None:
    assert makes_scores("auto", device_kind="cpu", sequence_tokens=WHOLE_SCORES_TOKENS)
    assert not makes_scores("auto", device_kind="cpu", sequence_tokens=WHOLE_SCORES_TOKENS + 1)
    assert not makes_scores("auto", device_kind="cuda", sequence_tokens=8)
    assert makes_scores("math", device_kind="cuda", sequence_tokens=8192)


def test_a_loss_has_as_many_rows_as_asked_for_and_never_none() -> None:
    assert loss_rows("whole", tokens=4096, vocabulary=320) == 4096
    assert loss_rows(100, tokens=64, vocabulary=320) == 64
    assert loss_rows("auto", tokens=0, vocabulary=320) == 1
    assert chunk_tokens(50_257) == LOGITS_CHUNK_MIN_TOKENS
    assert chunk_tokens(320) % 64 == 0


def test_rows_are_filled_up_to_a_multiple() -> None:
    assert [padded_rows(321, multiple) for multiple in (1, 16, 64)] == [321, 336, 384]
