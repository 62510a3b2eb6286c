import pytest

from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.energy import energy, owned_usd_per_hour


def test_a_node_of_eight_h100_draws_what_was_measured_and_less_than_its_nameplate():
    drawn = energy(device("h100-sxm"), 8, 3600)
    assert drawn.machine_power_w == pytest.approx(8400)
    assert drawn.machine_power_w < 10_200
    assert drawn.machine_kwh == pytest.approx(8.4)
    assert drawn.building_kwh == pytest.approx(8.4 * 1.15)


def test_heat_is_all_of_the_power():
    # 1 kWh is 3412.14 BTU.
    assert energy(device("h100-sxm"), 8, 1).heat_btu_per_hour == pytest.approx(8.4 * 3412.14, rel=1e-5)


def test_what_bloom_drew():
    """arXiv:2211.02001 (recall): 1,082,990 hours of A100 at 400 W, 433,196 kWh; all around them 256,646 kWh more."""
    drawn = energy(device("a100-80gb"), 1, 1_082_990 * 3600, pue=1)
    assert energy(device("a100-80gb"), 1, 1_082_990 * 3600, host_share=0, pue=1).machine_kwh == pytest.approx(433_196)
    assert drawn.building_kwh == pytest.approx(433_196 + 256_646, rel=0.1)


def test_assumptions_are_stated_and_unknown_power_is_unknown():
    assert [entry.name for entry in energy(device("t4"), 1, 1).assumptions] == [
        "device power",
        "host power per device power",
        "PUE",
    ]
    assert all(entry.source for entry in energy(device("t4"), 1, 1).assumptions)
    assert energy(device("ascend-910c"), 8, 3600) is None


def test_bought_devices_cost_their_price_over_their_years_and_their_power():
    h100 = device("h100-sxm")
    # 700 W, half as much again for the host, 15 % for the building, at 10 cents.
    power = 0.7 * 1.5 * 1.15 * 0.1
    assert owned_usd_per_hour(h100, bought_usd=35_064.0) == pytest.approx(1.0 + power)
    assert owned_usd_per_hour(h100, bought_usd=35_064.0, years=2, usd_per_kwh=0.0) == pytest.approx(2.0)
