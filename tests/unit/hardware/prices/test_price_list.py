from datetime import date

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.prices.clouds import billing_of
from trainwright.hardware.prices.price_list import checked, days_old, given_price, price_list, price_of, refusal, region


@pytest.fixture(autouse=True)
def packaged_only(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def row(**changes):
    plain = {
        "device": "h100-sxm",
        "provider": "P",
        "instance": "i",
        "kind": "on_demand",
        "usd_per_device_hour": "3.0",
        "region": "r",
        "source": "s",
        "as_of": "c",
        "note": "",
    }
    return plain | changes


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(usd_per_device_hour="700.0"), "placeholder"),
        (row(usd_per_device_hour="0"), "placeholder"),
        (row(usd_per_device_hour=""), "no price printed"),
        (row(usd_per_device_hour="-1"), "placeholder"),
        (row(usd_per_device_hour="three"), "a price that is no number"),
        (row(usd_per_device_hour="inf"), "a price that is no number"),
        (row(device=""), "device not in the catalogue"),
        (row(device="abacus"), "device not in the catalogue"),
        (row(provider="Q", usd_per_device_hour="30.01"), "more than 10 times the device's median"),
        (row(kind="barter"), "unknown kind of price"),
        (row(note="accelerator part only; host VM is a separate row"), "host not included"),
        (row(kind="spot", usd_per_device_hour="3.0"), "spot not below on-demand"),
        (row(kind="spot", usd_per_device_hour="0.3"), "spot at the provider's floor"),
    ],
)
def test_rows_that_cannot_be_true_are_counted_by_reason(bad, reason):
    listed = checked([row(), bad])
    assert listed.refused == {reason: 1}
    assert listed.cheapest("h100-sxm").usd_per_device_hour == 3.0


def test_a_believable_spot_price_is_kept_and_never_taken_for_on_demand():
    listed = checked([row(), row(kind="spot", usd_per_device_hour="1.2")])
    assert listed.cheapest("h100-sxm", "spot").usd_per_device_hour == 1.2
    assert listed.cheapest("h100-sxm").usd_per_device_hour == 3.0
    assert listed.cheapest("t4") is None


def test_a_spot_price_near_the_floor_is_doubtful_and_comes_last():
    spot = [row(kind="spot", usd_per_device_hour=usd, region=region) for usd, region in (("0.59", "a"), ("0.61", "b"))]
    listed = checked([row(), *spot])
    believed, doubtful = listed.offers("h100-sxm", kind="spot")
    assert (believed.usd_per_device_hour, believed.doubt) == (0.61, "")
    assert doubtful.doubt.startswith("20% of on-demand, near the floor")
    assert listed.cheapest("h100-sxm", "spot") == believed
    assert checked([row(), spot[0]]).cheapest("h100-sxm", "spot").doubt
    # An instance without an on-demand price is held against its cloud's.
    assert (
        checked([row(), row(kind="spot", usd_per_device_hour="0.5", instance="other")])
        .offers("h100-sxm", kind="spot")[0]
        .doubt
    )
    assert not checked([row(kind="spot", usd_per_device_hour="0.5")]).offers("h100-sxm")[0].doubt


def test_the_packaged_spot_prices_near_a_tenth_are_doubtful():
    lists = price_list().prices.items()
    doubtful = {(price.provider, name) for name, prices in lists for price in prices if price.doubt}
    assert doubtful >= {("AWS", "b300-sxm"), ("AWS", "h200-sxm"), ("GCP", "tpu-v6e")}
    assert not any(price.doubt for price in price_list().offers("b200-sxm"))


def test_the_published_list_is_checked_and_belongs_to_the_catalogue():
    listed = price_list()
    assert set(listed.prices) <= set(device_names())
    assert listed.refused["spot at the provider's floor"] == 1  # AWS B200
    assert listed.refused["spot not below on-demand"] >= 1
    for prices in listed.prices.values():
        assert all(0.05 < price.usd_per_device_hour < 50 and price.source for price in prices)


def test_of_two_prices_the_wrong_one_is_not_what_is_usual():
    assert checked([row(), row(provider="Q", usd_per_device_hour="299")]).refused == {
        "more than 10 times the device's median": 1
    }


def test_spot_is_held_against_its_own_region_first():
    dear = row(region="far", usd_per_device_hour="5.0")
    listed = checked([row(), dear, row(kind="spot", region="far", usd_per_device_hour="4.0")])
    assert listed.cheapest("h100-sxm", "spot").usd_per_device_hour == 4.0
    assert checked([row(), dear, row(kind="spot", usd_per_device_hour="4.0")]).refused == {
        "spot not below on-demand": 1
    }


def test_offers_by_kind_and_provider_come_cheapest_first():
    listed = price_list()
    usd = [price.usd_per_device_hour for price in listed.offers("h100-sxm", kind="on_demand")]
    assert len(usd) > 4
    assert usd == sorted(usd)
    assert {price.provider for price in listed.offers("h100-sxm", providers=["google", "lambda"])} == {"GCP", "Lambda"}
    assert listed.cheapest("h200-sxm", providers=["azure"]) is None
    assert listed.cheapest("trainium1", "reserved").usd_per_device_hour == 0.5123
    with pytest.raises(RecipeError, match="unknown cloud"):
        listed.offers("h100-sxm", providers=["cloudy"])


def test_a_machine_of_google_costs_its_accelerators_and_its_host():
    price = price_list().cheapest("h100-sxm", providers=["gcp"])
    assert price.usd_per_device_hour == pytest.approx((33.606 + 9.46) / 8, abs=1e-4)


@pytest.mark.parametrize(
    ("device", "cloud", "instance"),
    [
        ("t4", "aws", "g4dn.xlarge"),
        ("a10g", "aws", "g5.xlarge"),
        ("l4", "aws", "g6.xlarge"),
        ("t4", "gcp", "n1-highmem-4"),
        ("v100-sxm-16gb", "gcp", "n1-highmem-8"),
        ("a100-sxm-80gb", "gcp", "a2-ultragpu-1g"),
        ("h100-sxm", "gcp", "a3-highgpu-1g"),
        ("t4", "azure", "Standard_NC4as_T4_v3"),
        ("v100-pcie-16gb", "azure", "Standard_NC6s_v3"),
        ("rtx-4090", "vast", "1x-RTX_4090"),
    ],
)
def test_one_device_is_priced_at_an_instance_of_one(device, cloud, instance):
    price = price_list().cheapest(device, providers=[cloud], devices=1)
    assert (price.instance, price.idle_devices) == (instance, 0)


def test_fewer_devices_than_any_instance_has_cost_the_smallest_whole():
    single = price_list().cheapest("t4", providers=["aws"], devices=4)
    half = price_list().cheapest("t4", providers=["aws"], devices=2)
    assert (single.instance, single.idle_devices) == ("g4dn.12xlarge", 0)
    assert (half.instance, half.idle_devices) == ("g4dn.12xlarge", 2)
    assert half.usd_per_device_hour == 2 * single.usd_per_device_hour


def test_what_a_cloud_rents_at_unknown_prices_is_said():
    unknown = price_list().unpriced("a100-sxm-40gb")
    assert {entry.provider for entry in unknown} == {"Alibaba Cloud", "Tencent Cloud"}
    assert price_list().unpriced("m4-max") == ()


def test_regions_are_found_by_the_beginnings_of_their_words():
    prices = checked(
        [row(region="eu-north-1"), row(region="France, FR, EU", usd_per_device_hour="3"), row(region="us-east-1")]
    )
    found = lambda *regions: {each.region for each in prices.offers("h100-sxm", regions=regions)}  # noqa: E731
    assert found("eu") == {"eu-north-1", "France, FR, EU"}
    assert found("eu-north") == {"eu-north-1"} and found("us", "FR") == {"us-east-1", "France, FR, EU"}
    assert found("asia") == set() and found("") == set()


def test_a_price_has_the_age_of_its_own_row():
    (dated,) = checked([row(date="2026-01-02")]).offers("h100-sxm")
    (fetched,) = checked([row(as_of="2026-11-01")]).offers("h100-sxm")
    (unknown,) = checked([row(as_of="2c3d7ea")]).offers("h100-sxm")
    today = date(2026, 11, 23)
    assert [days_old(each, today) for each in (dated, fetched, unknown)] == [325, 22, None]


def test_every_place_of_the_lists_and_every_country_is_a_region(packaged_only):
    listed = {price.region for prices in price_list().prices.values() for price in prices} - {""}
    for name in (*listed, "eu", "EEA", "europe", "us", "uk", "jp", "us-east", "us-east-1", "usw2"):
        assert region(name) == name


@pytest.mark.parametrize(
    ("name", "near"),
    [("euu", "eu"), ("germny", "germany"), ("us-east-9", "us-east"), ("-", None), ("atlantis", None)],
)
def test_what_is_no_region_is_refused_with_a_near_one(packaged_only, name, near):
    with pytest.raises(RecipeError, match="^unknown region") as caught:
        region(name)
    assert caught.value.fix is None if near is None else near in caught.value.fix


def test_a_price_that_would_be_left_out_says_why_beforehand():
    mine = row(device="t4", provider="AWS", source="added by hand")
    assert refusal(mine | {"usd_per_device_hour": "0.5"}) is None
    assert refusal(mine | {"usd_per_device_hour": "99"}) == "more than 10 times the device's median"
    assert refusal(mine | {"usd_per_device_hour": "0.01"}) == "less than 1/10 of the device's median"


def test_a_given_price_far_beyond_the_lists_is_doubtful():
    dearest = max(each.usd_per_device_hour for each in price_list().prices["h100-sxm"])
    assert not given_price("h100-sxm", 9 * dearest, "on_demand").doubt
    assert given_price("h100-sxm", 20 * dearest, "on_demand").doubt.startswith("20 x the dearest in the lists")
    cheapest = min(each.usd_per_device_hour for each in price_list().prices["h100-sxm"])
    assert given_price("h100-sxm", cheapest / 20, "on_demand").doubt.startswith("0.05 x the cheapest in the lists")
    assert not given_price("h100-sxm", 0.0, "on_demand").doubt, "machines that are there already"


def test_the_list_of_one_device_has_its_prices_as_the_whole_list_has_them():
    every = price_list()
    assert len(every.prices) > 1
    for device in every.prices:
        alone = price_list(device)
        assert alone.prices == {device: every.prices[device]}
        assert alone.cheapest(device, devices=8) == every.cheapest(device, devices=8)


def test_instances_that_no_fast_link_joins_are_no_price_of_a_node_and_too_few_at_once_are():
    assert price_list().cheapest("a100-sxm-80gb", "spot", devices=8) is None
    assert price_list().cheapest("a100-sxm-80gb", "spot", devices=1).provider == "Verda"
    many = cluster("64x8xh100")
    price = price_of("h100-sxm", "spot", usd=None, clouds=None, machines=many)
    assert (price.provider, many.devices > billing_of(price).most_devices) == ("Nebius", True)


def test_a_cloud_whose_network_is_too_slow_to_join_machines_is_asked_last():
    named = {"usd": None, "clouds": ("gcp", "aws")}
    one, many = cluster("8xh100"), cluster("2x8xh100")
    assert price_of("h100-sxm", "on_demand", **named, machines=one).provider == "GCP"
    assert price_of("h100-sxm", "on_demand", **named, machines=many).provider == "AWS"
    only = price_of("h100-sxm", "on_demand", usd=None, clouds=("gcp",), machines=many)
    assert only.provider == "GCP"
