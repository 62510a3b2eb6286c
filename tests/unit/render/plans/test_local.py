from __future__ import annotations

from trainwright.render.plans.local import parts, rental_row
from trainwright.spec.plan import Rental


def test_unknown_costs_are_unknown():
    plain = Rental(
        device="t4",
        provider="",
        price_kind="",
        usd_per_device_hour=None,
        fits=True,
        seconds=10,
        usd=None,
        source="",
        as_of="",
        seconds_low=5,
        seconds_high=20,
        reason="no checked price is known",
    )
    assert rental_row(plain)[1:] == ("5 s to 20 s", "unknown", "unknown", "no checked price is known")


def test_the_price_list_of_a_row_is_named_where_all_is_wanted():
    offer = {
        "provider": "AWS",
        "price_kind": "on_demand",
        "usd_per_device_hour": 1.04,
        "source": "list",
        "as_of": "2c3",
    }
    rented = Rental(device="t4", fits=True, seconds=3600, seconds_low=1800, seconds_high=7200, usd=2.08, **offer)
    assert rental_row(rented)[2:] == ("$1 to $4.2", "$1.04 AWS on-demand", "list@2c3")
    assert rental_row(rented, whole=False)[4] == ""


def test_empty_parts_of_a_whole_are_left_out():
    assert parts({"weights": 2.0, "logits": 0.0, "reserved_unused": 1.0}, str) == [
        ("weights", "2.0"),
        ("reserved unused", "1.0"),
        ("total", "3.0"),
    ]
