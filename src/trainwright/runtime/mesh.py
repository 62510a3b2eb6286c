"""``Mesh``: the processes that train one network together, and which of them this one is.

An *axis* of the mesh is a way to share work; its ranks differ in that alone. From the outermost to the innermost axis,
so that ranks which exchange most are neighbours: pipeline stages (``pp``), replicas (``dp_replicate``), shards of
weights and optimizer state (``dp_shard``), parts of a sequence (``cp``), parts of a matrix (``tp``). Experts (``ep``)
are divided among neighbours along the data-parallel axes, and take no axis of their own: ``Mesh.experts``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import Store

from trainwright.core.registry import load
from trainwright.runtime.device import ACCELERATORS
from trainwright.spec.workload import DATA_AXES, ParallelPlan

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
GRADIENT_AXES = (*DATA_AXES, "cp")
"""Ranks along these see other targets: losses and gradients are summed over them."""
Found = tuple[Store, int, int]
"""Where processes meet, the number of this one, and how many they are."""
COLLECTIVES = f"{ACCELERATORS}:collectives"
TIMEOUT_S = 600.0
"""A collective that takes longer than this ends the run: a rank is gone or waits for another one."""


@dataclass(frozen=True, kw_only=True)
class ExpertMesh:
    """Who has which experts: ``apart`` are the ranks that have other ones each, ``sharing`` those that have the same.

    The latter share weights, or have copies of them, as all ranks of ``Mesh.sharing`` do of the rest.
    """

    apart: DeviceMesh
    sharing: DeviceMesh


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """One rank's view of the mesh; ``devices`` is None where one process trains alone."""

    parallel: ParallelPlan = field(default_factory=ParallelPlan)
    devices: DeviceMesh | None = None
    sharing: DeviceMesh | None = None
    """The ranks that share weights, or have copies of them; where there are both, copies are its first dim."""
    experts: ExpertMesh | None = None
    """Who has which experts; None where every rank has all of them."""

    @property
    def alone(self) -> bool:
        """Returns whether this process trains alone."""
        return self.devices is None

    @property
    def device_type(self) -> str:
        """Returns what torch calls the ranks' devices."""
        return "cpu" if self.devices is None else self.devices.device_type

    @property
    def rank(self) -> int:
        """Returns this process's number among all; 0 alone."""
        return 0 if self.devices is None else dist.get_rank()

    @property
    def ranks(self) -> int:
        """Returns how many processes train together."""
        return self.size(*AXES)

    @property
    def leads(self) -> bool:
        """Returns whether this process writes what is written once."""
        return self.rank == 0

    def size(self, *axes: str) -> int:
        """Returns how many ranks differ along these axes."""
        count = 1
        for axis in axes:
            count *= int(getattr(self.parallel, axis))
        return count

    def index(self, *axes: str) -> int:
        """Returns this rank's place among those that differ along these axes, the last axis counting fastest."""
        place = 0
        for axis in axes:
            place = place * self.size(axis) + (0 if self.devices is None else self.devices.get_local_rank(axis))
        return place

    def axis(self, name: str) -> DeviceMesh | None:
        """Returns the ranks that differ from this one along an axis, this one among them; None where it has one."""
        return None if self.devices is None or self.size(name) == 1 else self.devices[name]

    def sum(self, value: Tensor, *axes: str) -> Tensor:
        """Adds up a tensor over the ranks along these axes, in place, and returns it: the same bits on all of them."""
        for name in axes:
            along = self.axis(name)
            if along is not None:
                dist.all_reduce(value, group=along.get_group())
        return value


ALONE = Mesh()
"""The mesh of a process that trains alone."""


def everyone(value: Any, ranks: int, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Returns what each process gives, by its number; all must ask together.

    Args:
        value: of this process; any that pickles.
        ranks: how many they are.
        group: they; None: all.
    """
    values: list[Any] = [None] * ranks
    dist.all_gather_object(values, value, group=group)
    return values


@contextmanager
def joined(parallel: ParallelPlan, device: torch.device, found: Found | None = None) -> Iterator[Mesh]:
    """Joins the other processes for a while.

    Collectives run over gloo between processors and over the device's own library between accelerators.

    Args:
        parallel: the layout; its axes multiply to WORLD_SIZE.
        device: what this rank computes on.
        found: where they meet, this one's number and how many there are; None: the environment says (RANK, WORLD_SIZE,
            MASTER_ADDR, MASTER_PORT).

    Raises:
        ValueError: as many processes were started as the layout does not have.
    """
    kind = device.type
    backend = "gloo" if kind == "cpu" else f"cpu:gloo,{kind}:{load(COLLECTIVES, kind='device')(kind)}"
    timeout = timedelta(seconds=TIMEOUT_S)
    if found is None:
        dist.init_process_group(backend, timeout=timeout)
    else:
        store, rank, ranks = found
        dist.init_process_group(backend, timeout=timeout, store=store, rank=rank, world_size=ranks)
    try:
        yield mesh_of(parallel, kind)
    except BaseException:
        # An accelerator's library may wait for messages that never come: this process tells why it ends, and ends.
        if kind == "cpu":
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


def mesh_of(parallel: ParallelPlan, device_type: str) -> Mesh:
    """Returns this rank's view of a layout over the process group that is there.

    Raises:
        ValueError: the group has other ranks than the layout.
    """
    shape = tuple(int(getattr(parallel, axis)) for axis in AXES)
    if parallel.ranks != dist.get_world_size():
        raise ValueError(f"{dist.get_world_size()} processes were started for a layout of {parallel.ranks} ranks")
    devices = init_device_mesh(device_type, shape, mesh_dim_names=AXES)
    experts = None if parallel.ep == 1 else expert_mesh(parallel, device_type)
    return Mesh(parallel=parallel, devices=devices, sharing=_sharing(parallel, devices), experts=experts)


def expert_mesh(parallel: ParallelPlan, device_type: str) -> ExpertMesh:
    """Returns who has which experts: neighbours have other ones, first along ``dp_shard``, then along ``dp_replicate``.

    Raises:
        ValueError: the ranks of ``ep`` are no neighbours along these, or ``tp`` or ``cp`` has ranks.
    """
    if parallel.tp * parallel.cp > 1 or not parallel.experts_fit:
        raise ValueError(f"ep={parallel.ep} cannot lie in dp_shard={parallel.dp_shard} beside tp and cp")
    copies, shards = parallel.of_experts
    names = ("pp", "dp_replicate", "dp_shard", "ep")
    devices = init_device_mesh(device_type, (parallel.pp, copies, shards, parallel.ep), mesh_dim_names=names)
    sharing = devices["dp_shard"] if copies == 1 else devices["dp_replicate", "dp_shard"]
    return ExpertMesh(apart=devices["ep"], sharing=sharing)


def _sharing(parallel: ParallelPlan, devices: DeviceMesh) -> DeviceMesh | None:
    """Returns the ranks that share weights, ``cp`` ones too: gradients of theirs are of other tokens.

    Where nothing is shared (``zero_stage: 0``) all of them have copies, and each shards with itself.
    """
    if parallel.dp_replicate * parallel.dp_shard * parallel.cp == 1:
        return None
    if parallel.cp == 1:
        return devices["dp_shard"] if parallel.dp_replicate == 1 else devices["dp_replicate", "dp_shard"]
    # torch's own way to join axes, and to put meshes side by side.
    if parallel.zero_stage == 0 and parallel.dp_shard == 1:
        copies = devices["dp_replicate", "cp"]._flatten("copies")  # noqa: SLF001  # as above
        return DeviceMesh._concatenate([copies, devices["dp_shard"]])  # noqa: SLF001  # as above
    shards = devices["dp_shard", "cp"]._flatten("shards")  # noqa: SLF001  # as above
    if parallel.dp_replicate == 1:
        return shards
    return DeviceMesh._concatenate([devices["dp_replicate"], shards])  # noqa: SLF001  # as above
