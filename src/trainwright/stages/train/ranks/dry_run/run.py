"""One step of a layout on a fake process group, with tensors that have shapes and no memory: what each rank would do.

The network, its sharding, the step and the optimizer are those of a training; torch's own memory tracker looks on. A
rank's program does not depend on its number but for its pipeline stage, so that one rank is enough where there is none.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import FSDPModule
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.model.build import build_network
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import Batch
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parallel.dry_run import CLASSES, DryRank, DryRun, Sent, Share
from trainwright.planner.forecast.communication.messages import messages
from trainwright.planner.forecast.memory.table import library_bytes, predict_memory
from trainwright.runtime.device import DTYPES
from trainwright.runtime.mesh import AXES, mesh_of
from trainwright.runtime.norms import local
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import MASKED_KERNELS, ParallelPlan, recomputed_blocks
from trainwright.stages.train.layout import check_executable
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.ranks.step import RankedStep
from trainwright.stages.train.ranks.world import RankedWorld
from trainwright.stages.train.weights.average import averaged

MOST_PASSES = 2
"""Micro batches that are counted: the first one finds no gradients, the second and all after it do."""
CPU = torch.device("cpu")
CLASS_OF = {
    "Parameter": "weights",
    "Sharded Param": "weights",
    "Buffer": "activations",
    "Gradient": "gradients",
    "Sharded Grad": "gradients",
    "OptState": "optimizer",
    "Optstate": "optimizer",
    "Activation": "activations",
    "Temp": "activations",
    "Inputs": "activations",
    "Other": "activations",
    "Unsharded Param": "communication",
    "Unsharded Grad": "communication",
    "All Gather": "communication",
    "Reduce Scatter": "communication",
}
"""What torch's memory tracker calls a tensor, as one of ``CLASSES``."""
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


def dry_run(recipe: Recipe, plan: Plan) -> DryRun:
    """Returns what one step of a plan does on a rank, beside what is planned for it.

    Raises:
        RecipeError: the trainer cannot execute the plan, or the step asks for values that nothing here has.
    """
    parallel = replace(plan.parallel, compile=False, shares=())
    check_executable(plan, recipe)
    if parallel.pp > 1:
        raise RecipeError(
            "a dry run counts no pipeline", where="train.exec.layout", seen=f"pp={parallel.pp}", expected="pp=1"
        )
    if recipe.task.name != "next-token":
        raise RecipeError(
            "a dry run makes batches of text alone", where="task.name", seen=recipe.task.name, expected="next-token"
        )
    work, kernels = plan.workload, recipe.train.exec.kernels
    notes: tuple[str, ...] = ()
    if kernels.attention in MASKED_KERNELS:
        notes += (f"attention by {kernels.attention} is counted as by sdpa, with a whole mask of documents",)
        kernels = replace(kernels, attention="sdpa")
    for key, moves in (
        ("exec.layout.offload", parallel.offload != "none"),
        ("activation_offload", work.activation_offload),
    ):
        if moves:
            fix = f"leave train.{key} out to count what would be moved"
            raise RecipeError("a dry run moves nothing to host memory", where=f"train.{key}", fix=fix)
    data = parallel.dp_replicate * parallel.dp_shard
    micro_batches = max(1, -(-work.batch_sequences // (data * parallel.micro_batch_sequences)))
    passes = min(MOST_PASSES, micro_batches)
    sequences = passes * data * parallel.micro_batch_sequences
    run = RunSpec(
        model=plan.model,
        workload=replace(work, batch_tokens=sequences * work.sequence_tokens),
        cluster=plan.cluster,
        stack=read_stack(OURS),
        kernels=kernels,
    )
    notes += ("blocks are counted as they run before they are compiled",) if plan.parallel.compile else ()
    notes += ("every data-parallel rank is counted with the same sequences",) if plan.parallel.shares else ()
    notes += ("products in float8 are counted as bf16's",) if work.precision == "fp8" else ()
    return DryRun(
        parallel=parallel,
        device=plan.cluster.device.name,
        passes=passes,
        micro_batches=micro_batches,
        ranks=(_of_a_rank(recipe, run, parallel, passes=passes),),
        notes=notes,
    )


def _of_a_rank(recipe: Recipe, run: RunSpec, parallel: ParallelPlan, *, passes: int) -> DryRank:
    """Returns what the first rank does, and all others alike."""
    with _fake_group(parallel.ranks):
        try:
            shares, memory, sent = _step(recipe, run, parallel)
        except DataDependentOutputException as error:
            raise RecipeError(
                "the step asks for the value of a tensor, which has none in a dry run",
                where="train",
                seen=str(error.func),
                fix="train.optimizer.name=adamw train.exec.update=fused",
            ) from error
    return DryRank(
        rank=0,
        alike=parallel.ranks,
        shares=shares,
        memory=memory,
        planned_memory=planned_memory(run, parallel),
        sent=sent,
        planned_sent=messages(run, parallel, passes=passes),
    )


@contextmanager
def _fake_group(ranks: int) -> Iterator[None]:
    """Joins a process group of which this rank alone is there: its collectives return at once, with nothing sent."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()
        gc.collect()


class _TrackedStep(RankedStep):
    """A step whose tracker begins every pass anew: of a module it can see one pass alone; the peak stays."""

    tracker: MemTracker

    def loss(self, micro: Batch) -> Loss:
        """As ``TrainingStep.loss``."""
        self.tracker.reset_mod_stats()
        return super().loss(micro)


def _step(
    recipe: Recipe, run: RunSpec, parallel: ParallelPlan
) -> tuple[dict[str, Share], dict[str, float], tuple[Sent, ...]]:
    """Returns shapes, bytes at the peak of a step, and its messages."""
    model, work = run.transformer, run.workload
    mesh = mesh_of(parallel, "cpu")
    world = RankedWorld(mesh, batch_sequences=work.batch_sequences)
    task = NextToken(sequence_tokens=work.sequence_tokens, end_of_text=0 if recipe.train.document_masking else None)
    with FakeTensorMode():
        network = build_network(
            model,
            dtype=DTYPES[work.precision],
            recompute=work.recompute,
            recomputed=recomputed_blocks(work.recompute_budget, model.layers) if work.recompute_budget else None,
            kernels=run.kernels,
        )
        whole = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
        world.share(network, compiled=False)
        optimizers = Optimizers(network, recipe.train.optimizer, recipe.train.exec.update)
        if recipe.train.ema is not None:
            optimizers = averaged(network, optimizers, recipe.train.ema, 0)
        clock = PhaseClock(CPU)
        clock.start()
        _make_states(network, optimizers)
        batch = _batch(len(world.rows(work.batch_sequences)), work.sequence_tokens, dropout=bool(model.dropout))
        tracker, counter = _tracker(network, optimizers), Collectives(parallel)
        step = _TrackedStep(
            task,
            network,
            optimizers,
            clock,
            micro_batch=parallel.micro_batch_sequences,
            clip_norm=recipe.train.clip_norm,
            compiled=False,
            mesh=mesh,
            batch_sequences=work.batch_sequences,
        )
        step.tracker = tracker
        with tracker, counter:
            step(batch, 1.0)
        memory = _by_class(tracker.get_tracker_snapshot("peak"))
        # The tracker of a sharded network knows one optimizer at most; state is there at every moment, so that the peak
        # is the same one without it.
        memory["optimizer"] = float(sum(_size_bytes(local(tensor)) for _, tensor in optimizers.tensors()))
        shares = {
            name: Share(whole=whole[name], local=tuple(local(parameter).shape))
            for name, parameter in network.named_parameters()
        }
    return shares, memory, counter.sent()


def _make_states(network: Network, optimizers: Optimizers) -> None:
    """Makes the optimizer's state, so that the step that is counted is one of many and not the first."""
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step(1.0)
    optimizers.zero_grad()


def _batch(sequences: int, tokens: int, *, dropout: bool) -> Batch:
    """Returns a rank's sequences, each with one target more than it is long."""
    batch = {"tokens": torch.zeros(sequences, tokens + 1, dtype=torch.long)}
    return batch | ({"samples": torch.zeros(sequences, dtype=torch.long)} if dropout else {})


def _tracker(network: Network, optimizers: Optimizers) -> MemTracker:
    """Returns torch's memory tracker for a network, sharded or whole."""
    if isinstance(network, FSDPModule):
        return FSDPMemTracker(network)
    tracker = MemTracker()
    tracker.track_external(network, *optimizers.members)
    return tracker


def _size_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _by_class(snapshot: dict[torch.device, dict[Any, int]]) -> dict[str, float]:
    """Returns the bytes of ``CLASSES`` at one moment."""
    memory = dict.fromkeys(CLASSES, 0.0)
    for parts in snapshot.values():
        for name, size_bytes in parts.items():
            named = str(getattr(name, "value", name))
            if named != "Total":
                memory[CLASS_OF[named]] += size_bytes
    return memory


def planned_memory(run: RunSpec, parallel: ParallelPlan) -> dict[str, float]:
    """Returns the planned bytes of tensors by ``CLASSES``: without libraries, context, and what an allocator keeps."""
    stack = replace(run.stack, memory=replace(run.stack.memory, workspace_bytes=0.0))
    layouts = Layouts.of([parallel], [run.workload.recompute], run.workload)
    table = predict_memory(replace(run, stack=stack), layouts)
    use = {name: float(getattr(table, name)[0]) for name in (*CLASSES, "logits", "workspace")}
    temporary = use.pop("workspace") - library_bytes(run.transformer, run.cluster.device)
    return use | {"activations": use["activations"] + use.pop("logits") + temporary}


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
            self._found[kind, axis].append(max(map(_size_bytes, tensors)))
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
