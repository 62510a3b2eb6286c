from __future__ import annotations

import pytest

from trainwright.spec.parts.rotary import RopeScaling


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"kind": "linear", "factor": -1.0}, "rope_scaling factors must be above 0, seen -1.0 and 1.0"),
        ({"kind": "yarn"}, "rope_scaling.original_tokens must be at least 1, seen None"),
        (
            {"kind": "llama3", "original_tokens": 8, "slow_turns": 4.0, "fast_turns": 1.0},
            "rope_scaling.slow_turns must be above 0 and below fast_turns, seen 4.0 and 1.0",
        ),
        (
            {"kind": "longrope", "original_tokens": 8, "short_factors": (1.0,), "long_factors": (1.0, 2.0)},
            "rope_scaling.short_factors must be 2 positive numbers, seen (1.0,)",
        ),
    ],
)
def test_what_cannot_be_is_named(keys, line):
    assert RopeScaling(**keys).problems(pairs=2) == (line,)


def test_what_can_be_has_no_problems():
    assert (
        RopeScaling(kind="llama3", factor=8.0, original_tokens=8, slow_turns=1.0, fast_turns=4.0).problems(pairs=2)
        == ()
    )
