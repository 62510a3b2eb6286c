"""What a recommendation assumes of its answers' machines: the network between them, runs measured on such devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.prices.networks import network_text, stated, why_single
from trainwright.planner.cost.assumptions import THIN, of_measured, of_trainer
from trainwright.planner.search.ranking import Option, Recommendation
from trainwright.spec.device import ClusterSpec
from trainwright.spec.plan import Assumption, Origin
from trainwright.spec.run import RunSpec


def of_answers(recommendation: Recommendation, run: RunSpec) -> list[Assumption]:
    """Returns lines on devices of an answer that few runs were measured on, then the networks that answers assume.

    First which kinds of devices this trainer was never run on, where it is what trains.
    """
    found = {each.device: cluster(each.cluster) for each in _answers(recommendation)}
    runs = [replace(run, cluster=machines) for machines in found.values()]
    never = {each.name: each for one in runs for each in of_trainer(one)}
    measured = [of_measured(one) for one in runs]
    return [*never.values(), *(each for each in measured if each.key == THIN), *of_networks(recommendation)]


def _answers(recommendation: Recommendation) -> Iterable[Option]:
    goals, options = recommendation.goals, recommendation.options
    answers: Iterable[Option] = [each for _, each in recommendation.headlines] if goals.are_open else options[:1]
    return answers or recommendation.closest


def of_networks(recommendation: Recommendation) -> list[Assumption]:
    """Returns a line for each kind of machine and cloud of which an answer joins several by a network.

    Machines that the fastest link joins (NVL72, a pod of TPUs) use none.
    """
    rented = (each for each in _answers(recommendation) if each.price is not None and each.price.provider)
    several = ((each.provider, cluster(each.cluster)) for each in rented if each.nodes > 1)
    networks = {(cloud, each.device.name): each for cloud, each in several if not each.is_one_domain}
    return [between(cloud, each) for (cloud, _), each in networks.items()]


def between(provider: str, machines: ClusterSpec) -> Assumption:
    """Returns the network that is reckoned with between a cloud's machines, who states it, and why not to join them."""
    value, source = network_text(provider, machines)
    source = "; ".join(filter(None, (why_single(provider, machines), source)))
    origin: Origin = "default" if stated(provider, machines.device.name) is None else "catalog"
    return Assumption(f"between {machines.device.name} machines", value, "", origin, source, key="network")
