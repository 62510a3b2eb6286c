import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.prices.cards import card, cards
from trainwright.hardware.prices.price_list import PriceList
from trainwright.spec.device import Price


def price(usd, kind="on_demand"):
    return Price(usd_per_device_hour=usd, kind=kind, provider="P", region="r", as_of="d", source="s")


@pytest.fixture
def prices():
    """An H100 for 3 dollars, or 1 as spot; a T4 for half a dollar."""
    return PriceList(prices={"h100-sxm": (price(3.0), price(4.0), price(1.0, "spot")), "t4": (price(0.5),)}, refused={})


def test_what_a_dollar_and_a_watt_buy(prices):
    h100 = card("H100", prices)
    assert h100.dtype == "bf16"
    assert h100.flops_per_usd == pytest.approx(989.4e12 * 3600 / 3)
    assert h100.flops_per_s_per_w == pytest.approx(989.4e12 / 700)
    assert h100.building_w == pytest.approx(700 * 1.5 * 1.15)
    assert h100.prices["spot"].usd_per_device_hour == 1.0
    assert card("t4", prices).dtype == "fp16"


def test_what_is_unknown_is_none(prices):
    ascend = card("ascend-910c", prices)
    assert ascend.usd_per_hour is ascend.flops_per_usd is ascend.flops_per_s_per_w is ascend.building_w is None
    assert card("gaudi", prices).flops_per_s is None


def test_filters(prices):
    assert {each.device.name for each in cards(prices, kind="tpu", min_memory_bytes=90_000_000_000)} == {
        "tpu-v5p",
        "tpu-v7",
    }
    assert {each.device.vendor for each in cards(prices, vendor="amd")} == {"AMD"}
    assert len(cards(prices)) + len(cards(prices, kind="cpu")) == len(device_names())
    with pytest.raises(RecipeError, match="^vendor: unknown vendor"):
        cards(prices, vendor="Acorn")


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("name", "a10"),
        ("price", "t4"),
        ("flops-per-dollar", "h100-sxm"),
        ("memory", "m3-ultra"),
        ("power", "rtx-a2000"),
    ],
)
def test_the_best_come_first_and_the_unknown_last(prices, order, first):
    ordered = cards(prices, order=order)
    assert ordered[0].device.name == first
    if order == "price":
        assert [each.device.name for each in ordered[:2]] == ["t4", "h100-sxm"]
        assert ordered[-1].usd_per_hour is None


def test_processors_are_listed_where_they_are_asked_for(prices):
    assert not any(each.device.kind == "cpu" for each in cards(prices))
    assert {each.device.kind for each in cards(prices, kind="cpu")} == {"cpu"}
    assert {each.device.kind for each in cards(prices, vendor="amd")} == {"cpu", "rocm"}
