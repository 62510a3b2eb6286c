"""Which messages a step sends, counted as torch's operations pass by."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainwright.planner.counts.parallel.dry_run import Sent
from trainwright.runtime.mesh import AXES
from trainwright.spec.workload import ParallelPlan

KIND_OF = {
    "_allgather_base_": "all-gather",
    "allgather_": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "allreduce_": "all-reduce",
    "all_reduce": "all-reduce",
    "all_reduce_": "all-reduce",
    "alltoall_base_": "all-to-all",
    "alltoall_": "all-to-all",
    "all_to_all_single": "all-to-all",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "send": "send",
    "recv_": "receive",
}
"""Operations of torch's two libraries of collectives."""
DEVICE = torch.ops.prim.device.default


def size_bytes(tensor: Tensor) -> int:
    """Returns the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


class Collectives(TorchDispatchMode):
    """Counts collectives over more than one rank by kind and by the axes along which their ranks differ."""

    def __init__(self, parallel: ParallelPlan) -> None:
        super().__init__()
        self._shape = tuple(int(getattr(parallel, axis)) for axis in AXES)
        self._axes: dict[str, str] = {}
        self._found: dict[tuple[str, str], list[int]] = defaultdict(list)

    def sent(self) -> tuple[Sent, ...]:
        """Returns what was counted."""
        return tuple(
            Sent(kind=kind, axis=axis, count=len(sizes), size_bytes=float(sum(sizes)))
            for (kind, axis), sizes in sorted(self._found.items())
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Two thirds of what passes by asks a tensor for its device: its mode says that, and no tracker need hear of it.
        if func is DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_mode.dispatch(func, types, args)
        kind = (
            KIND_OF.get(func.name().partition("::")[2].partition(".")[0])
            if func.namespace in ("c10d", "_c10d_functional")
            else None
        )
        if kind is None:
            return func(*args, **(kwargs or {}))
        group, before = _group_of(args), tree_leaves(args)
        result = func(*args, **(kwargs or {}))
        axis = self._axis(group)
        if axis:
            tensors = (leaf for leaf in (*before, *tree_leaves(result)) if isinstance(leaf, Tensor))
            self._found[kind, axis].append(max(map(size_bytes, tensors)))
        return result

    def _axis(self, group: dist.ProcessGroup) -> str:
        """Returns the axes of the mesh along which a group's ranks differ; empty where it has one rank."""
        if group.group_name not in self._axes:
            places = np.unravel_index(dist.get_process_group_ranks(group), self._shape)
            differ = (len(set(along.tolist())) > 1 for along in places)
            self._axes[group.group_name] = "+".join(axis for axis, several in zip(AXES, differ, strict=True) if several)
        return self._axes[group.group_name]


def _group_of(args: Any) -> dist.ProcessGroup:
    """Returns the process group among the arguments of a collective: an object, or a name."""
    for argument in args:
        if isinstance(argument, torch.ScriptObject):
            return dist.ProcessGroup.unbox(argument)
        if isinstance(argument, str) and argument not in ("sum", "avg", "max", "min"):
            resolve: Any = vars(dist.distributed_c10d)["_resolve_process_group"]
            group: dist.ProcessGroup = resolve(argument)
            return group
    raise LookupError("a collective without a process group")
