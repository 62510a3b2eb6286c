"""What a recommendation of several rented machines assumes of the network between them."""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.prices.networks import network_text, stated, why_single
from trainwright.planner.search.ranking import Option, Recommendation
from trainwright.spec.device import ClusterSpec
from trainwright.spec.plan import Assumption, Origin


def of_networks(recommendation: Recommendation) -> list[Assumption]:
    """Returns a line for each kind of machine and cloud of which an answer joins several."""
    goals, options = recommendation.goals, recommendation.options
    answers: Iterable[Option] = [each for _, each in recommendation.headlines] if goals.are_open else options[:1]
    joined = {(each.provider, each.device): each for each in answers or recommendation.closest}
    return [_of(each) for each in joined.values() if each.nodes > 1 and each.price is not None and each.price.provider]


def _of(option: Option) -> Assumption:
    return between(option.provider, cluster(option.cluster))


def between(provider: str, machines: ClusterSpec) -> Assumption:
    """Returns the network that is reckoned with between a cloud's machines, who states it, and why not to join them."""
    value, source = network_text(provider, machines)
    source = "; ".join(filter(None, (why_single(provider, machines), source)))
    origin: Origin = "default" if stated(provider, machines.device.name) is None else "catalog"
    return Assumption(f"between {machines.device.name} machines", value, "", origin, source, key="network")
