from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.prices.price_list import price_of
from trainwright.hardware.prices.unpriced import YOURS, why_unpriced


def test_a_node_is_not_priced_by_a_machine_of_one_device_and_the_reason_names_it():
    machines = cluster("8xa100-80gb")
    assert price_of(machines.device.name, "spot", usd=None, clouds=None, machines=machines) is None
    why = why_unpriced(machines, "spot")
    assert why.startswith("Verda 1A100.22V, at $0.45 the cheapest spot a100-sxm-80gb of the lists, has 1 of 8 devices")
    assert why.endswith(YOURS)


def test_a_device_that_is_this_machines_alone_is_in_no_list():
    machines = cluster("8xh100")
    own = replace(machines, node=replace(machines.node, device=replace(machines.device, name="Some CPU @ 2 GHz")))
    assert why_unpriced(own, "on_demand").startswith("no list has a price of Some CPU @ 2 GHz")


@pytest.mark.parametrize(
    ("on", "kind", "where", "reason"),
    [
        ("8xh100", "reserved", {}, "no believable reserved price of h100-sxm; "),
        ("8xmi300x", "on_demand", {"clouds": ("aws",)}, "no believable on-demand price of mi300x at AWS; "),
        ("8xa100-80gb", "on_demand", {"clouds": ("aliyun",)}, "a100-sxm-80gb at Alibaba Cloud; "),
        ("8xh100", "reserved", {"clouds": ("aws", "gcp"), "regions": ("eu",)}, "h100-sxm at AWS or GCP in eu; "),
    ],
)
def test_a_kind_cloud_or_region_of_which_no_list_has_a_row_is_named(on, kind, where, reason):
    why = why_unpriced(cluster(on), kind, **where)
    assert reason in why and why.startswith("the lists have no") and why.endswith(YOURS)
