import pytest

from trainwright.hardware.prices.instances import can_be_had, instance_devices, named_devices, whole
from trainwright.spec.device import Price


def price(instance, *, provider="Nebius"):
    return Price(
        usd_per_device_hour=2.0,
        kind="on_demand",
        provider=provider,
        region="r",
        as_of="c",
        source="s",
        instance=instance,
    )


@pytest.mark.parametrize(
    ("instance", "devices"),
    [
        ("gpu_8x_h100_sxm5", 8),
        ("1x_A100-80GB_SECURE", 1),
        ("gpu-h200-sxm_8gpu-128vcpu-1600gb", 8),
        ("a3-highgpu-8g", 8),
        ("a2-megagpu-16g", 16),
        ("2B200.60V", 2),
        ("n3-H100x8-NVLink", 8),
        ("crusoe_A100-80G-sxm4x8", 8),
        ("denvr_A100-sxm4", 1),
        ("paperspace_V100-32GBx2", 2),
        ("paperspace_V100-32GB", 1),
        ("p5.48xlarge", None),
        ("tpu-v6e-1", None),
        ("TPU v5e", None),
        ("", None),
    ],
)
def test_names_of_instances_that_say_how_many_devices_they_have(instance, devices):
    assert named_devices(instance) == devices


def test_the_list_of_types_says_what_a_name_does_not():
    assert instance_devices(price("g4dn.12xlarge", provider="AWS")) == 4
    assert instance_devices(price("Standard_NC48ads_A100_v4", provider="Azure")) == 2


def test_who_needs_less_than_an_instance_pays_for_all_of_it():
    rented = whole(price("g4dn.12xlarge", provider="AWS"), 1)
    assert (rented.usd_per_device_hour, rented.idle_devices) == (8.0, 3)
    assert whole(price("g4dn.12xlarge", provider="AWS"), 3).usd_per_device_hour == pytest.approx(8.0 / 3)
    assert whole(price("g4dn.12xlarge", provider="AWS"), 4) is None
    assert whole(price("made-up", provider="AWS"), 1) is None


def test_a_clouds_file_says_more_than_a_name():
    assert instance_devices(price("n3-L40x4", provider="Hyperstack")) == 4
    assert instance_devices(price("made-up")) is None


@pytest.mark.parametrize(
    ("instance", "provider", "devices", "there"),
    [
        ("1x_H100", "Nebius", 1, True),
        ("1x_H100", "Nebius", 8, False),  # eight such instances are no node of eight
        ("8x_H100", "Nebius", 64, True),
        ("8x_H100", "Nebius", 4, False),
        ("8x-H100_SXM", "Vast.ai", 8, True),
        ("8x-H100_SXM", "Vast.ai", 16, False),  # machines of unrelated hosts
        ("made-up", "Nebius", 24, True),
    ],
)
def test_devices_are_had_in_whole_instances_that_fast_links_join(instance, provider, devices, there):
    assert can_be_had(price(instance, provider=provider), "h100-sxm", devices) == there
