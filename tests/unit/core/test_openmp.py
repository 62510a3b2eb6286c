"""The user's own settings win."""

from __future__ import annotations

import pytest

from trainwright.core.openmp import SPIN_COUNT, wait_briefly


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": SPIN_COUNT}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_only_what_is_unsaid_is_set(given, expected) -> None:
    wait_briefly(given)
    assert given == expected
