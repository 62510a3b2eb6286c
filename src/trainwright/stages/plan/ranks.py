"""This machine as several devices, one for each process that trains: what each has of the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import find_device
from trainwright.hardware.catalogue.nodes import DEFAULT_BUS, joined, node_of
from trainwright.hardware.machine.facts import MachineFacts
from trainwright.hardware.machine.record import Machine
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.plan.machine import Here, this_machine
from trainwright.planner.rates.threads import OnThreads
from trainwright.spec.plan import Assumption
from trainwright.spec.run import RunSpec
from trainwright.spec.sections.layout import LayoutSection
from trainwright.spec.sections.train import TrainExec
from trainwright.spec.workload import ParallelPlan

BETWEEN_PROCESSORS = "gloo"
BETWEEN_NODES = "roce-100"
"""The network between machines, where nobody has listed it: as in the catalogue's node of unknown devices."""


def ranks_of(how: TrainExec, facts: MachineFacts) -> int:
    """Returns how many processes train: the layout's, or with ``auto`` one for each accelerator, else one a node.

    All nodes count as equal to this one.

    Raises:
        RecipeError: more ranks than the nodes have accelerators.
    """
    asked, devices = how.layout, len(facts.gpus) if how.device != "cpu" else 0
    if not isinstance(asked, LayoutSection):
        return how.nodes * max(1, devices)
    ranks = asked.parallel().ranks
    if devices and ranks > how.nodes * devices:
        raise RecipeError(
            "the layout has more ranks than this machine has accelerators",
            where="train.exec.layout",
            seen=f"{ranks} ranks, {devices} devices" + (f" on each of {how.nodes} nodes" if how.nodes > 1 else ""),
            fix="lower its axes, or try the layout on the processors: train.exec.device=cpu",
        )
    return ranks


def threads_of(how: TrainExec, facts: MachineFacts, ranks: int) -> int | Literal["auto"]:
    """Returns the threads of each process: asked for, or where several share a node's processors their part of them."""
    ranks //= how.nodes
    shared = how.threads == "auto" and ranks > 1 and (how.device == "cpu" or not facts.gpus)
    return max(1, facts.cores // ranks) if shared else how.threads


def on_ranks(here: Here, ranks: int, nodes: int = 1) -> Here:
    """Returns nodes of so many devices, all like this machine; of a processor each device has its part.

    Args:
        here: the machine as one device, with the threads of one process.
        ranks: how many processes train.
        nodes: on how many machines.
    """
    if ranks == 1:
        return here
    ranks //= nodes
    device = here.cluster.device
    source = here.source
    if device.kind == "cpu":
        crowded = ranks * (here.threads or here.facts.cores) / here.facts.cores
        source = OnThreads(source=source, slower=crowded, doubt=crowded) if crowded > 1 else source
        visible = None if device.visible_bytes is None else device.visible_bytes // ranks
        flops_per_s = {dtype: rate / ranks for dtype, rate in device.flops_per_s.items()}
        memory_bytes = device.memory_bytes // ranks
        device = replace(device, memory_bytes=memory_bytes, visible_bytes=visible, flops_per_s=flops_per_s)
        link = BETWEEN_PROCESSORS
    else:
        link = DEFAULT_BUS
    known = None if device.kind == "cpu" else find_device(device.name)
    network = BETWEEN_PROCESSORS if device.kind == "cpu" else BETWEEN_NODES
    whole = joined(here.cluster, nodes, ranks, scale_up=link, scale_out=network)
    node = replace(whole.node, device=device)
    if known is not None:
        listed = node_of(known, ranks)
        node = replace(node, scale_up=listed.scale_up, scale_up_devices=listed.scale_up_devices, bus=listed.bus)
    whole = replace(whole, node=node)
    if nodes == 1:
        return replace(here, cluster=replace(whole, scale_out=None), source=source)
    text = "every node like this machine; nobody has listed the network between them"
    note = Assumption("network of a node", network, "", "default", text, key="scale_out")
    return replace(here, cluster=whole, source=source, rates=(*here.rates, note))


def here_for(how: TrainExec, machine: Machine) -> Here:
    """Returns this machine as training will use it: a device for each process.

    Raises:
        RecipeError: more ranks than the machine has accelerators.
        MachineError: an accelerator is wanted by name and the machine has none that torch can use.
    """
    ranks = ranks_of(how, machine.facts)
    threads = threads_of(how, machine.facts, ranks)
    here = this_machine(machine, wanted=how.device, threads=threads, checkpoint_every_s=how.checkpoint_every)
    return on_ranks(here, ranks, how.nodes)


def layout_of(how: TrainExec, run: RunSpec) -> ParallelPlan | None:
    """Returns the layout that a recipe asks for, of one device where there is one; None: it is left to the planner.

    Raises:
        RecipeError: every reason why the layout cannot run.
    """
    if not isinstance(how.layout, LayoutSection):
        return ParallelPlan() if run.cluster.devices == 1 else None
    asked = how.layout.parallel()
    problems = asked.problems(run.transformer, run.workload, run.cluster)
    if problems:
        raise RecipeError("this layout cannot run: {reasons}", where="train.exec.layout", reasons="; ".join(problems))
    return asked


def kept(how: TrainExec, *, compiled: bool) -> FixedLayout:
    """Returns what a recipe fixes of a layout that the planner chooses."""
    layout = FixedLayout(compile=compiled)
    if how.micro_batch != "auto":
        layout["micro_batch"] = how.micro_batch
    return layout
