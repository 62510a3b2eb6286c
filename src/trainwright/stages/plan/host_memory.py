"""What of a training waits in host memory: whether this machine's devices have the link for it, and which."""

from __future__ import annotations

from dataclasses import replace

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import find_device
from trainwright.hardware.catalogue.links import link
from trainwright.hardware.catalogue.nodes import DEFAULT_BUS, node_of
from trainwright.planner.plan.machine import Here
from trainwright.spec.plan import Assumption
from trainwright.spec.sections.layout import LayoutSection
from trainwright.spec.sections.train import TrainSection


def with_bus(here: Here, section: TrainSection) -> Here:
    """Returns the machine with its devices' bus to host memory, where the training sends something over it.

    Raises:
        RecipeError: the device's memory is the host's.
    """
    layout = section.exec.layout
    updates = isinstance(layout, LayoutSection) and layout.offload == "optimizer"
    if not (section.activation_offload or updates):
        return here
    device, node = here.cluster.device, here.cluster.node
    known = find_device(device.name)
    bus = node.bus or (link(DEFAULT_BUS) if known is None else node_of(known, 1).bus)
    if device.kind == "cpu" or bus is None:
        key, least = ("exec.layout.offload", "none") if updates else ("activation_offload", "false")
        raise RecipeError(
            "this device has no memory beside the host's that {what} could leave",
            where=f"train.{key}",
            seen=f"{'optimizer' if updates else 'true'} on {device.name}",
            fix=f"set train.{key}={least}" + ("" if updates else "; train.recompute=full keeps less"),
            what="the optimizer's state" if updates else "activations",
        )
    if node.bus is not None:
        return here
    text = "nobody has listed this device's" if known is None else "catalogue: nodes with this device"
    note = Assumption("bus to host memory", bus.name, "", "default", text, key="bus")
    return replace(here, cluster=replace(here.cluster, node=replace(node, bus=bus)), rates=(*here.rates, note))
