from types import SimpleNamespace

from trainwright.planner.search.joined import of_networks
from trainwright.planner.search.ranking import Goals


def answer(cluster, nodes, provider="Verda"):
    price = SimpleNamespace(provider=provider)
    option = SimpleNamespace(provider=provider, device="b200-sxm", cluster=cluster, nodes=nodes, price=price)
    return SimpleNamespace(goals=Goals(budget_usd=1.0), options=(option,), headlines=(), closest=())


def test_several_rented_machines_say_which_network_is_assumed_between_them():
    (line,) = of_networks(answer("2x8xb200-sxm", 2))
    assert (line.name, line.key, line.origin) == ("between b200-sxm machines", "network", "default")
    assert "3,200 Gbit/s" in line.value and "Verda does not state it" in line.source


def test_one_machine_and_machines_of_no_cloud_assume_nothing():
    assert of_networks(answer("8xb200-sxm", 1)) == []
    assert of_networks(answer("2x8xb200-sxm", 2, provider="")) == []
