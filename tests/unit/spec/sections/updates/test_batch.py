"""Rates that follow the batch, by hand."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.train import TrainSection


def factor(**scaling):
    return TrainSection(batch_tokens=4096, sequence_tokens=1024, rate_scaling=scaling or None).rate_factor


def test_rates_follow_the_batch():
    assert factor() == 1.0
    assert factor(base_batch_tokens=1024) == 2.0
    assert factor(base_batch_tokens=1024, rule="linear") == 4.0
    assert factor(base_batch_tokens=16384, rule="sqrt") == 0.5
    assert factor(base_batch_tokens=4096, rule="linear") == 1.0


def test_a_base_is_needed_and_positive():
    for scaling in ({"rule": "sqrt"}, {"base_batch_tokens": 0}, {"base_batch_tokens": 1, "rule": "cube"}):
        with pytest.raises(ValueError, match="base_batch_tokens|rule"):
            TrainSection(rate_scaling=scaling)


def sizes(*ramp, **train):
    section = {"batch_tokens": 4096, "sequence_tokens": 512} | train
    return TrainSection(
        **section, batch_ramp=[{"batch_tokens": tokens, "until": until} for tokens, until in ramp]
    ).sizes


def test_a_ramp_is_counted_in_updates_from_the_start_of_the_run():
    assert sizes().ramp == ()
    ramp = sizes(("1024", "10k tokens"), (1536, "15 steps"), (2048, "30k tokens")).ramp
    by_hand = [(1024, 10), (1536, 5), (2048, 6)]  # 10240 tokens, 7680 and 12288: 30208 in all, the nearest to 30000
    assert [(part.batch_tokens, part.steps) for part in ramp] == by_hand


@pytest.mark.parametrize(
    ("ramp", "seen"),
    [
        ([(1000, "9 steps")], r"batch_ramp.0.batch_tokens \(1000\) .*sequence_tokens \(512\); nearest: 512 or 1024"),
        ([(100, "9 steps")], "nearest: 512"),
        ([(2048, "9 steps"), (1024, "12 steps")], r"batch_ramp.0.batch_tokens \(2048\) is more than the 1024 after it"),
        ([(8192, "9 steps")], r"\(8192\) is more than the 4096 after it"),
        (
            [(512, "9 steps"), (1024, "9 steps")],
            r"batch_ramp.1 has no update: .* at least 10 steps, which are 5632 tok",
        ),
        ([(512, "100 tokens")], r"batch_ramp.0 has no update: .* at least 1 steps, which are 512 tokens"),
        ([(512, "2 epochs")], "until is in tokens or steps, seen 2 epochs"),
        ([(512, "20")], "cannot read|unknown unit"),
    ],
)
def test_a_ramp_that_cannot_be_is_refused_with_what_can(ramp, seen):
    with pytest.raises(ValidationError, match=seen):
        sizes(*ramp)
