from __future__ import annotations

import pytest

from trainwright.spec.parts.experts import Experts


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ({"count": 2, "active": 3}, "experts.active (3) exceeds experts.count (2)"),
        ({"count": 8, "active": 1, "groups": 3}, "experts.count (8) must be a multiple of experts.groups (3)"),
        (
            {"count": 8, "active": 3, "groups": 4},
            "experts.active (3) exceeds the experts of 1 of 4 groups",
        ),
        ({"count": 8, "active": 1, "dense_layers": 2}, "experts.dense_layers must be below layers (2), seen 2"),
    ],
)
def test_what_cannot_be_is_named(sizes, line):
    assert Experts(ffn_width=8, **sizes).problems(layers=2)[0] == line


def test_what_can_be_has_no_problems():
    assert Experts(count=8, active=2, ffn_width=8, groups=4, active_groups=2, dense_layers=1).problems(layers=2) == ()
