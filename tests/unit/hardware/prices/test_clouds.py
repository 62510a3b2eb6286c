import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.prices.clouds import billing_of, cloud, clouds
from trainwright.hardware.prices.snapshot import packaged
from trainwright.spec.device import Price


def test_every_device_that_a_cloud_names_is_in_the_catalogue():
    listed = {row["provider"] for each in packaged() for row in each.rows}
    for each in clouds():
        named = {*each.accelerators.values(), *each.instance_prefixes.values(), *(i.device for i in each.instances)}
        assert named <= set(device_names()), each.slug
        assert (
            each.source
            and each.recorded
            and (each.feed or each.instances or each.title in listed or each.slug == "own")
        ), each.slug


@pytest.mark.parametrize(
    ("name", "title"), [("aws", "AWS"), ("Google Cloud", "GCP"), ("AWS", "AWS"), ("aliyun", "Alibaba Cloud")]
)
def test_names_and_aliases(name, title):
    assert cloud(name).title == title


def test_an_unknown_cloud_names_its_neighbours():
    with pytest.raises(RecipeError, match=r"^--cloud: unknown cloud \(seen 'azur'.*did you mean azure"):
        cloud("azur", where="--cloud")


def test_one_name_is_another_card_elsewhere():
    assert cloud("runpod").device("A100-80GB", "1x_A100-80GB_SECURE") == "a100-pcie-80gb"
    assert cloud("aws").device("A100-80GB", "p4de.24xlarge") == "a100-sxm-80gb"
    assert cloud("azure").device("A100-80GB", "Standard_NC24ads_A100_v4") == "a100-pcie-80gb"
    assert cloud("azure").device("A100-80GB", "Standard_ND96amsr_A100_v4") == "a100-sxm-80gb"
    assert cloud("lambda").device("A100", "gpu_1x_a100_sxm4") == "a100-sxm-40gb"
    assert cloud("aws").device("Inferentia", "inf1.xlarge") is None


def price(provider, kind="on_demand"):
    return Price(usd_per_device_hour=1.0, kind=kind, provider=provider, region="", as_of="", source="a list")


def test_a_second_more_is_paid_as_the_cloud_counts():
    wall_s = np.asarray([10.0, 60.0, 61.0])
    assert list(billing_of(price("GCP")).billed_s(wall_s, 8)) == [60.0, 60.0, 61.0]
    assert list(billing_of(price("Lambda")).billed_s(wall_s, 8)) == [60.0, 60.0, 120.0]
    assert list(billing_of(price("RunPod")).billed_s(wall_s, 8)) == [10.0, 60.0, 61.0]
    assert "not known" in billing_of(price("Nebius")).source
    assert billing_of(price("")) is None and billing_of(None) is None


def test_more_devices_than_at_once_are_a_contract_or_not_to_be_had():
    many = billing_of(price("AWS"))
    assert list(many.billed_s(np.asarray([3600.0, 3600.0]), np.asarray([512.0, 513.0]))) == [3600.0, 30 * 86400.0]
    assert many.most_devices == np.inf
    assert billing_of(price("RunPod")).most_devices == 64
    assert billing_of(price("AWS", "spot")).most_devices == 256
    assert billing_of(price("RunPod", "spot")).most_devices == 64
    assert billing_of(price("AWS", "reserved")).billed_s(np.asarray([1.0]), 16_384) == 365 * 86400.0
    spot = billing_of(price("AWS", "spot"))
    assert spot.billed_s(np.asarray([3600.0]), 1024) == 3600.0, "no contract is made on spot"


def test_a_reserved_price_is_paid_for_its_whole_term():
    assert billing_of(price("AWS", "reserved")).billed_s(np.asarray([300.0]), 8) == 365 * 86400.0
