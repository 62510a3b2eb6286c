"""Rates that follow the batch, by hand."""

from __future__ import annotations

import pytest

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
