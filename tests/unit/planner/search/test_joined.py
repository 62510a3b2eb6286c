from types import SimpleNamespace

import pytest

from fixtures.questions import scenario
from trainwright.hardware.catalogue.accelerators import NEVER_RUN, NEVER_RUN_KEY
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.planner.search.joined import between, of_answers, of_networks
from trainwright.planner.search.ranking import Goals


def answer(cluster, nodes, provider="Verda", device="b200-sxm"):
    price = SimpleNamespace(provider=provider)
    option = SimpleNamespace(provider=provider, device=device, cluster=cluster, nodes=nodes, price=price)
    return SimpleNamespace(goals=Goals(budget_usd=1.0), options=(option,), headlines=(), closest=())


def test_several_rented_machines_say_which_network_is_assumed_between_them():
    (line,) = of_networks(answer("2x8xb200-sxm", 2))
    assert (line.name, line.key, line.origin) == ("between b200-sxm machines", "network", "default")
    assert "3,200 Gbit/s" in line.value and "Verda does not state it" in line.source


def test_one_machine_and_machines_of_no_cloud_assume_nothing():
    assert of_networks(answer("8xb200-sxm", 1)) == []
    assert of_networks(answer("2x8xb200-sxm", 2, provider="")) == []


@pytest.mark.parametrize(
    ("device", "one", "several"),
    [("tpu-v5p", "16x4xtpu-v5p", "4480x4xtpu-v5p"), ("gb200", "18x4xgb200", "32x4xgb200")],
)
def test_machines_that_the_fastest_link_joins_use_no_network(device, one, several):
    assert of_networks(answer(one, 16, provider="GCP", device=device)) == []
    (line,) = of_networks(answer(several, 32, provider="GCP", device=device))
    assert line.key == "network"
    keys = [{each.key: each for each in scenario(on=on, clouds=("gcp",)).assumptions} for on in (one, several)]
    assert "network" not in keys[0] and "scale_out" not in keys[0]
    assert keys[0]["scale_up"].name == "link between all devices"
    assert {"network", "scale_out"} <= keys[1].keys() and keys[1]["scale_up"].name == "link inside a node"


def test_a_cloud_whose_network_is_much_slower_says_first_why_its_machines_are_not_joined():
    slow = between("AWS", cluster("2x8xa100-sxm-80gb"))
    assert slow.source.startswith("the cloud states 400 Gbit/s between machines, reckoned is with 1,600")
    assert between("AWS", cluster("2x8xh100-sxm")).source.startswith("AWS states 3,200: P5")
    assert between("OCI", cluster("2x8xa100-sxm-80gb")).origin == "catalog"


def test_answers_on_devices_that_few_runs_were_measured_on_say_so():
    run = scenario(method="lora").run
    found = SimpleNamespace(**vars(answer("8xb200-sxm", 1)))
    assert of_answers(found, run) == []
    found.options = (
        SimpleNamespace(device="ascend-910b2", cluster="8xascend-910b2", nodes=1, price=None, provider=""),
    )
    (line,) = of_answers(found, run)
    assert line.value == 13 and line.source.startswith("none with software 'default': the range is wider")


def test_answers_that_this_trainer_was_never_run_on_say_so_once_for_each_kind():
    found = answer("8xb200-sxm", 1)
    others = (("ascend-910b2", "8xascend-910b2"), ("h100-sxm", "8xh100-sxm"))
    found.headlines = [
        (name, SimpleNamespace(device=device, cluster=on, nodes=1, price=None, provider=""))
        for name, (device, on) in zip(("cheapest", "fastest"), others, strict=True)
    ]
    found.goals = Goals()
    lines = [each for each in of_answers(found, scenario(stack="trainwright").run) if each.key == NEVER_RUN_KEY]
    assert [(each.name, each.value) for each in lines] == [
        ("training on Ascend NPUs", NEVER_RUN),
        ("training on CUDA devices", NEVER_RUN),
    ]
    assert all(each.key != NEVER_RUN_KEY for each in of_answers(found, scenario(stack="megatron-core").run))
