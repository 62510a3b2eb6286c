"""What joins rented machines: what a cloud states of it beside what a forecast reckons with."""

from __future__ import annotations

from trainwright.core.units import format_count
from trainwright.hardware.prices.clouds import Network, cloud
from trainwright.spec.device import ClusterSpec

LEAST_SHARE = 0.5
"""A stated network below this share of what a forecast reckons with makes that forecast another machine's."""


def stated(provider: str, device: str) -> Network | None:
    """Returns what a cloud's file says of the network between machines of a device; None: nothing."""
    return next((each for each in cloud(provider).networks if device in each.devices_of), None)


def reckoned_gbit_per_s(machines: ClusterSpec) -> float:
    """Returns what a forecast has for all devices of a machine together; 0 where nothing joins machines."""
    port = machines.scale_out
    return 0.0 if port is None else port.bytes_per_s * machines.node.devices * 8 / 1e9


def why_single(provider: str, machines: ClusterSpec) -> str:
    """Returns why such machines of a cloud are looked at one by one; empty where several may be joined.

    A stand-in for the network is believed of no cloud, and a datasheet's only of one that does not state half as much.
    """
    network, reckoned = stated(provider, machines.device.name), reckoned_gbit_per_s(machines)
    if network is None:
        unknown = machines.origins.get("scale_out") == "default"
        return "neither cloud nor datasheet states a network between such machines" if unknown else ""
    if network.gbit_per_s < LEAST_SHARE * reckoned:
        own, ours = format_count(network.gbit_per_s), format_count(reckoned)
        return f"the cloud states {own} Gbit/s between machines, reckoned is with {ours}: plan --scale-out"
    return ""


def network_text(provider: str, machines: ClusterSpec) -> tuple[str, str]:
    """Returns the network that a forecast reckons with between a cloud's machines, and who states it."""
    port, network = machines.scale_out, stated(provider, machines.device.name)
    name = "" if port is None else f" ({port.name})"
    value = f"{reckoned_gbit_per_s(machines):,.0f} Gbit/s a machine{name}"
    if network is None:
        return value, f"{provider} does not state it; as {machines.node.source}"
    return value, f"{provider} states {network.gbit_per_s:,.0f}: {network.source}"
