import math

import pytest

from trainwright.hardware.catalogue.runs import DAY_S, read_runs


def test_the_numbers_have_a_source_and_a_date():
    published = read_runs()
    assert published.source and published.recorded
    assert 0 <= published.overhead < 1.5
    assert published.overhead_days > 0 and published.start_s > 0 and published.spread > 0


def test_the_overhead_grows_with_days_and_devices_and_one_device_has_none():
    published, long = read_runs(), 1000 * DAY_S
    assert published.overhead_share(long, 1, 0.5) == 0
    half = 1 + published.overhead_devices
    assert published.overhead_share(long, half, 1.0) == pytest.approx(published.overhead / 2)
    assert published.overhead_share(long, 16384, 1.0) == pytest.approx(published.overhead, rel=1e-3)
    days = published.overhead_days * DAY_S
    assert published.overhead_share(days, 1e9, 1.0) == pytest.approx(published.overhead * (1 - math.exp(-1)))
    assert published.overhead_share(3600, 1e9, 0.5) < 0.05


def test_steps_that_wait_lose_less_beside_them():
    """It is a multiple of what the operations take at the peak, however long the steps make them last."""
    published, long = read_runs(), 1000 * DAY_S
    fast, slow = (published.overhead_share(long, 1024, mfu) for mfu in (0.5, 0.25))
    assert fast == pytest.approx(2 * slow)
