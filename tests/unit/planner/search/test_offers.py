from __future__ import annotations

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.prices.price_list import checked
from trainwright.planner.search.offers import OWN, offers, owned, pool_parts, read_pool


def row(usd, *, provider="Nebius", kind="on_demand", instance="gpu-h100-sxm_8gpu-128vcpu-1600gb"):
    return {
        "device": "h100-sxm",
        "provider": provider,
        "instance": instance,
        "kind": kind,
        "usd_per_device_hour": str(usd),
        "region": "somewhere",
        "source": "a list",
        "as_of": "2026-11-01",
        "note": "",
    }


PRICES = checked(
    [
        row(3.0),
        row(2.5),
        row(1.2, kind="spot"),
        row(4.0, provider="RunPod", instance="1x_H100-SXM_SECURE"),
        row(6.9, provider="AWS", instance="p5.48xlarge"),
        row(2.0, provider="AWS", instance="p5.48xlarge", kind="spot"),
    ]
)


def test_the_cheapest_of_each_cloud_and_kind():
    offered = offers("h100-sxm", PRICES, node_devices=8)
    assert {(each.provider, each.kind): each.usd_per_device_hour for each in offered} == {
        ("Nebius", "on_demand"): 2.5,
        ("Nebius", "spot"): 1.2,
        ("RunPod", "on_demand"): 4.0,
        ("AWS", "on_demand"): 6.9,
        ("AWS", "spot"): 2.0,
    }
    assert {each.provider: each.whole for each in offered} == {"Nebius": 8, "RunPod": 1, "AWS": 8}
    assert {each.spot_provider for each in offered} == {None, "nebius", "aws"}


def test_clouds_and_kinds_can_be_chosen():
    offered = offers("h100-sxm", PRICES, node_devices=8, clouds=["aws"], kinds=["spot"])
    assert [(each.provider, each.kind) for each in offered] == [("AWS", "spot")]
    with pytest.raises(RecipeError, match="unknown cloud"):
        offers("h100-sxm", PRICES, node_devices=8, clouds=["nowhere"])


def test_a_device_without_a_price_is_offered_at_none():
    (offered,) = offers("l4", PRICES, node_devices=8)
    assert (offered.provider, offered.price, offered.usd_per_device_hour) == ("", None, None)


def test_what_one_has_costs_what_one_says():
    offer = owned(cluster("4x8xa100-80gb"), 1.5)
    assert (offer.provider, offer.devices, offer.usd_per_device_hour) == (OWN, 32, 1.5)


def test_bought_devices_that_a_run_leaves_idle_are_paid_off_as_well():
    offer = owned(cluster("8xh100-sxm"), 1.5, idle_usd_per_device_hour=1.0)
    assert offer.hourly_usd(np.array([2.0, 4.0, 8.0])) == pytest.approx([1.5 + 6 / 2, 1.5 + 4 / 4, 1.5])
    (unpriced,) = offers("l4", PRICES, node_devices=8)
    assert unpriced.hourly_usd(np.array([1.0])) is None


def test_a_pool_names_unlike_clusters():
    one, other = read_pool("2x8xa100-80gb + 8xh100-sxm")
    assert (one.devices, other.devices, other.device.name) == (16, 8, "h100-sxm")
    with pytest.raises(RecipeError, match=r"one kind of device is named twice.*2x8xh100"):
        read_pool("8xh100-sxm+8xh100-sxm")
    with pytest.raises(RecipeError, match="unknown device"):
        read_pool("8xh100-sxm+8xnothing")
    for text in ("8xh100-sxm+", "+8xl4", "8xh100-sxm++8xl4", "8xh100-sxm + + 8xl4"):
        with pytest.raises(RecipeError, match=r"nothing before or behind a \+"):
            read_pool(text)


def test_a_cloud_that_rents_a_device_at_no_known_price_is_named_and_its_price_unknown():
    prices = checked([row(3.0)])
    (offer,) = offers("a10", prices, node_devices=8, clouds=["alibaba"])
    assert (offer.provider, offer.usd_per_device_hour, offer.kind) == ("Alibaba Cloud", None, None)
    (nobody,) = offers("mi300x", prices, node_devices=8, clouds=["alibaba"])
    assert nobody.provider == ""


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Intel Xeon Platinum 8480+", ["Intel Xeon Platinum 8480+"]),
        ("2xXeon 8480++8xh100-sxm", ["2xXeon 8480+", "8xh100-sxm"]),
        ("8xh100-sxm + Xeon 8480+", ["8xh100-sxm", "Xeon 8480+"]),
        ("8xa100-80gb+8xh100-sxm", ["8xa100-80gb", "8xh100-sxm"]),
    ],
)
def test_a_plus_joins_two_unless_it_ends_a_name(text, parts):
    assert pool_parts(text) == parts
    assert len(read_pool(text)) == len(parts)
