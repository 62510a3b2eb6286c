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


def test_empty_parts_of_a_whole_are_left_out():
    assert parts({"weights": 2.0, "logits": 0.0, "reserved_unused": 1.0}, str) == [
        ("weights", "2.0"),
        ("reserved unused", "1.0"),
        ("total", "3.0"),
    ]
