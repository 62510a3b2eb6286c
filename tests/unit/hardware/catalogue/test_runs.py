import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.hardware.catalogue.runs import DAY_S, read_runs


def test_the_numbers_have_a_source_and_a_date():
    published = read_runs()
    assert published.source and published.recorded
    assert 0 <= published.overhead < 1.5
    assert published.overhead_days > 0 and published.start_s > 0 and published.spread > 0


def test_the_overhead_grows_with_days_and_devices_and_one_device_has_none():
    published, long = read_runs(), 1000 * DAY_S
    assert published.overhead_share(long, 1) == 0
    half = 1 + published.overhead_devices
    assert published.overhead_share(long, half) == pytest.approx(published.overhead / 2)
    assert published.overhead_share(long, 1e9) == pytest.approx(published.overhead, rel=1e-3)
    days = published.overhead_days * DAY_S
    assert published.overhead_share(days, 1e9) == pytest.approx(published.overhead * (1 - math.exp(-1)))


@given(
    days=st.tuples(st.floats(0, 1000), st.floats(0, 1000)),
    devices=st.tuples(st.integers(1, 200_000), st.integers(1, 200_000)),
)
def test_the_overhead_never_falls_as_days_or_devices_grow(days, devices):
    published = read_runs()
    less, more = (
        published.overhead_share(pick(days) * DAY_S, pick(devices))  # both numbers at least as large
        for pick in (min, max)
    )
    assert 0 <= less <= more <= published.overhead


@given(days=st.floats(0, 1), devices=st.integers(1, 100))
def test_up_to_a_day_on_a_hundred_devices_there_is_hardly_any(days, devices):
    assert read_runs().overhead_share(days * DAY_S, devices) < 0.02


def test_a_node_has_none_however_long_it_runs():
    assert read_runs().overhead_share(365 * DAY_S, 8) < 0.001


def test_a_run_of_months_on_16384_loses_less_than_its_failures_and_a_quarter():
    """Llama 3.1 405B: "higher than 90 %" effective (arXiv 2407.21783, section 3.3.4), failures counted in it."""
    assert read_runs().overhead_share(54 * DAY_S, 16384) < 0.25
