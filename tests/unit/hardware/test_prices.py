import pytest

from trainwright.hardware.catalogue import device_names
from trainwright.hardware.prices import checked, price_list


def row(**changes):
    plain = {
        "device": "h100-sxm", "provider": "P", "instance": "i", "kind": "on_demand", "usd_per_device_hour": "3.0",
        "region": "r", "source": "s", "as_of": "c", "note": "",
    }  # fmt: skip
    return plain | changes


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(usd_per_device_hour="700.0"), "placeholder"),
        (row(usd_per_device_hour="0"), "placeholder"),
        (row(usd_per_device_hour=""), "no price printed"),
        (row(device=""), "device not in the catalogue"),
        (row(kind="barter"), "unknown kind of price"),
        (row(note="accelerator part only; host VM is a separate row"), "host not included"),
        (row(kind="spot", usd_per_device_hour="3.0"), "spot not below on-demand"),
        (row(kind="spot", usd_per_device_hour="0.3"), "spot at the provider's floor"),
    ],
)
def test_rows_that_cannot_be_true_are_counted_by_reason(bad, reason):
    found = checked([row(), bad])
    assert found.refused == {reason: 1}
    assert found.cheapest("h100-sxm").usd_per_device_hour == 3.0


def test_a_believable_spot_price_is_kept_and_never_taken_for_on_demand():
    found = checked([row(), row(kind="spot", usd_per_device_hour="1.2")])
    assert found.cheapest("h100-sxm", "spot").usd_per_device_hour == 1.2
    assert found.cheapest("h100-sxm").usd_per_device_hour == 3.0
    assert found.cheapest("t4") is None


def test_the_published_list_is_checked_and_belongs_to_the_catalogue():
    found = price_list()
    assert set(found.prices) <= set(device_names())
    assert found.refused["spot at the provider's floor"] == 1  # AWS B200
    assert found.refused["spot not below on-demand"] >= 1
    for prices in found.prices.values():
        assert all(0.05 < price.usd_per_device_hour < 50 and price.source for price in prices)
