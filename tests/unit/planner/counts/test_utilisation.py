from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.planner.counts.utilisation import utilisation

rates = st.floats(min_value=1e6, max_value=1e18)


@given(rates, rates)
def test_a_share_is_never_above_one(flops_per_s, peak_flops_per_s):
    share = utilisation(flops_per_s, peak_flops_per_s)
    assert (share is None) == (flops_per_s > peak_flops_per_s)
    assert share is None or share == pytest.approx(flops_per_s / peak_flops_per_s)


def test_without_a_peak_nothing_is_known():
    assert utilisation(1e12, None) is None
    assert utilisation(1e12, 0.0) is None


def test_a_beaten_peak_is_no_peak():
    assert utilisation(1.35e11, 1e11) is None
