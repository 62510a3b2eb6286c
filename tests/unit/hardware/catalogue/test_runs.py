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
    assert published.overhead_share(long, 1, 0.0) == 0
    half = 1 + published.overhead_devices
    assert published.overhead_share(long, half, 0.0) == pytest.approx(published.overhead / 2)
    assert published.overhead_share(long, 1e9, 0.0) == pytest.approx(published.overhead, rel=1e-3)
    days = published.overhead_days * DAY_S
    assert published.overhead_share(days, 1e9, 0.0) == pytest.approx(published.overhead * (1 - math.exp(-1)))
    assert published.overhead_share(3600, 1e9, 0.0) < 0.05


def test_what_costs_millions_is_watched():
    """Llama 3.1 405B took 3.8e25 FLOPs, and a tenth of its time beside steps (arXiv 2407.21783): failures."""
    published, long = read_runs(), 100 * DAY_S
    assert published.overhead_share(long, 16384, 3.8e25) < 0.01
    small, middle = (published.overhead_share(long, 1024, flops) for flops in (0.0, published.overhead_flops))
    assert middle == pytest.approx(small / 2)
