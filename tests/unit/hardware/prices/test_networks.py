from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.prices.clouds import clouds
from trainwright.hardware.prices.networks import network_text, reckoned_gbit_per_s, stated, why_single


def test_every_network_names_devices_of_the_catalogue_its_rate_and_its_source():
    for each in clouds():
        named = [name for network in each.networks for name in network.devices_of]
        assert set(named) <= set(device_names()) and len(named) == len(set(named)), each.slug
        assert all(network.gbit_per_s > 0 and "read 20" in network.source for network in each.networks), each.slug


def test_a_machine_of_eight_ports_is_reckoned_with_all_of_them():
    assert reckoned_gbit_per_s(cluster("2x8xh100-sxm")) == pytest.approx(3200, rel=0.01)
    assert reckoned_gbit_per_s(replace(cluster("8xh100-sxm"), scale_out=None)) == 0.0


def test_what_nobody_states_is_not_joined_and_a_datasheet_is_said_to_be_one():
    assert "neither cloud nor datasheet" in why_single("Hyperstack", cluster("2x8xrtx-a4000"))
    assert why_single("Verda", cluster("2x8xb200-sxm")) == ""
    value, source = network_text("Verda", cluster("2x8xb200-sxm"))
    assert value.startswith("3,200 Gbit/s a machine (8 x ")
    assert source.startswith("Verda does not state it; as NVIDIA DGX B200")


def test_a_stated_network_is_believed_and_a_much_slower_one_leaves_single_machines():
    assert stated("GCP", "b200-sxm").gbit_per_s == 3200
    assert why_single("GCP", cluster("2x8xb200-sxm")) == ""
    assert "GCP states 3,200: A4" in network_text("GCP", cluster("2x8xb200-sxm"))[1]
    assert "the cloud states 100 Gbit/s" in why_single("GCP", cluster("2x8xa100-sxm-80gb"))
