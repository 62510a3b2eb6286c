"""One step of a layout on a fake process group, with tensors that have shapes and no memory: what each rank would do.

The network, its sharding, the step and the optimizer are those of a training; torch's own memory tracker looks on. A
rank's program does not depend on its number but for its pipeline stages, so that one rank of each place is enough.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.hardware.machine.facts import cores, memory
from trainwright.launch.jobs import run_jobs
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.model.optimizers.groups import freeze
from trainwright.model.parallel.stages import keep_stages
from trainwright.model.tasks.task import Batch, Task
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parallel.dry_run import CLASSES, DryRank, DryRun, Sent, Share
from trainwright.planner.forecast.communication.messages import messages
from trainwright.planner.forecast.memory.stages import stages_at
from trainwright.planner.forecast.memory.table import library_bytes, predict_memory
from trainwright.runtime.device import DTYPES
from trainwright.runtime.mesh import Mesh, mesh_of
from trainwright.runtime.norms import local
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.run import RunSpec
from trainwright.spec.sections.tasks.keys import DistillSection
from trainwright.spec.summary import ParameterGroup
from trainwright.spec.workload import MASKED_KERNELS, ParallelPlan, recomputed_blocks
from trainwright.stages.train.layout import check_executable
from trainwright.stages.train.optimizer import Optimizers, assigned
from trainwright.stages.train.ranks.dry_run.batches import task_and_batch
from trainwright.stages.train.ranks.dry_run.collectives import Collectives, size_bytes
from trainwright.stages.train.ranks.dry_run.tracking import (
    TrackedPipeline,
    TrackedStep,
    by_class,
    forward_hooks_alone,
    products_of,
    tracker_of,
)
from trainwright.stages.train.ranks.pipeline.schedules import passes as passes_of
from trainwright.stages.train.ranks.pipeline.world import copies_in
from trainwright.stages.train.ranks.world import world_of
from trainwright.stages.train.step import TrainingStep
from trainwright.stages.train.weights.average import averaged

MOST_PASSES = 2
"""Micro batches that are counted: the first one finds no gradients, the second and all after it do."""
FURTHER = 1
"""The same in a pipeline, beyond one for each of its ranks: by then schedules keep the most of them, and gradients."""
GROWING = ("gpipe", "dualpipe")
"""Schedules that keep something of every micro batch: all activations, or the last stage's cast of the head."""
MOST_BLOCKS = 100
"""Passes through a block that are counted in this process, a fifth of a second each: other ones start for six."""
PROCESS_BYTES = 1 << 30
"""Of one that has torch, and the tracker's view of one place."""
CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is counted: a run of as many sequences as the counted passes have, in a layout.

    ``names`` are the parameters of each place of the pipeline; none where there is no pipeline.
    """

    recipe: Recipe
    run: RunSpec
    parallel: ParallelPlan
    task: Task
    batch: Batch
    passes: int
    names: tuple[tuple[str, ...], ...] = ()


def dry_run(recipe: Recipe, plan: Plan, tell: Callable[[int, int], None] = lambda *_: None) -> DryRun:
    """Returns what one step of a plan does on each rank, beside what is planned for it; ranks alike are one.

    Args:
        recipe: of the training.
        plan: of it.
        tell: hears how many places of a pipeline are counted, of how many.

    Raises:
        RecipeError: the trainer cannot execute the plan, or the step asks for values that nothing here has.
    """
    check_executable(plan, recipe)
    _check_on_device(plan)
    asked, places = _asked(recipe, plan), range(plan.parallel.pp)
    names = tuple(_names(asked, place) for place in places) if len(places) > 1 else ()
    jobs = [(recipe, plan, place, names) for place in places]
    done = count(1)
    return DryRun(
        parallel=asked.parallel,
        device=plan.cluster.device.name,
        passes=asked.passes,
        micro_batches=_micro_batches(plan),
        ranks=tuple(
            run_jobs(
                _count,
                jobs,
                workers=_processes() if asked.passes * asked.run.model.blocks > MOST_BLOCKS else 1,
                on_done=lambda *_: tell(next(done), len(jobs)),
            )
        ),
        notes=_notes(recipe, plan),
        groups=_groups(asked),
    )


def _processes() -> int:
    """Returns how many places this machine counts side by side."""
    return max(1, min(cores()[1], memory()[1] // PROCESS_BYTES))


def _count(job: tuple[Recipe, Plan, int, tuple[tuple[str, ...], ...]]) -> DryRank:
    recipe, plan, place, names = job
    return _of_a_rank(replace(_asked(recipe, plan), names=names), place)


def _asked(recipe: Recipe, plan: Plan) -> Question:
    """Returns what is counted."""
    parallel, kernels = replace(plan.parallel, compile=False, shares=()), recipe.train.exec.kernels
    if kernels.attention in MASKED_KERNELS:
        kernels = replace(kernels, attention="sdpa")
    passes = _passes(parallel, _micro_batches(plan))
    rows = passes * parallel.micro_batch_sequences
    tokens = parallel.dp_replicate * parallel.dp_shard * rows * plan.workload.sequence_tokens
    workload = replace(plan.workload, batch_tokens=tokens)
    run = RunSpec(model=plan.model, workload=workload, cluster=plan.cluster, stack=read_stack(OURS), kernels=kernels)
    task, batch = task_and_batch(recipe, vocabulary=run.transformer.vocabulary, sequences=rows)
    return Question(recipe=recipe, run=run, parallel=parallel, task=task, batch=batch, passes=passes)


def _micro_batches(plan: Plan) -> int:
    """Returns how many a rank's step has."""
    parallel = plan.parallel
    data = parallel.dp_replicate * parallel.dp_shard
    return max(1, -(-plan.workload.batch_sequences // (data * parallel.micro_batch_sequences)))


def _groups(asked: Question) -> tuple[ParameterGroup, ...]:
    """Returns who gets what of the recipe's groups and of its width; none where it has none."""
    section = asked.recipe.train.optimizer
    if not section.groups and asked.recipe.model.width_ratio == 1:
        return ()
    with FakeTensorMode():
        return tuple(assigned(_network(asked), section))


def _passes(parallel: ParallelPlan, micro_batches: int) -> int:
    """Returns how many micro batches are counted: of those that keep more with each one all, else as many as tell."""
    if parallel.pp == 1:
        return min(MOST_PASSES, micro_batches)
    further = parallel.pp if parallel.schedule == "interleaved" else FURTHER  # which works in rounds of them
    most = micro_batches if parallel.schedule in GROWING else parallel.pp + further
    return passes_of(parallel, min(most, micro_batches))


def _check_on_device(plan: Plan) -> None:
    for key, moves in (
        ("exec.layout.offload", plan.parallel.offload != "none"),
        ("activation_offload", plan.workload.activation_offload),
    ):
        if moves:
            fix = f"leave train.{key} out to count what would be moved"
            raise RecipeError("a dry run moves nothing to host memory", where=f"train.{key}", fix=fix)


def _notes(recipe: Recipe, plan: Plan) -> tuple[str, ...]:
    """Returns what is counted as something else."""
    attention = recipe.train.exec.kernels.attention
    masked = f"attention by {attention} is counted as by sdpa, with a whole mask of documents"
    notes = (
        (attention in MASKED_KERNELS, masked),
        (plan.parallel.compile, "blocks are counted as they run before they are compiled"),
        (plan.parallel.shares, "every data-parallel rank is counted with the same sequences"),
        (isinstance(recipe.task, DistillSection), "the teacher is not counted: neither its weights nor its passes"),
        (plan.workload.ramp, "a step of the full batch is counted, of which the run has smaller ones first"),
        (plan.workload.precision == "fp8", "products in float8 are counted as bf16's"),
    )
    return tuple(note for holds, note in notes if holds)


@contextmanager
def _member(parallel: ParallelPlan, place: int) -> Iterator[Mesh]:
    """Joins a group as the first rank of a pipeline's place: others are not there, and nothing is sent to them.

    What torch remembers of one place's meshes it would take for the next one's: both are parts of one shape.
    """
    rank = place * (parallel.ranks // parallel.pp)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=parallel.ranks)
    try:
        yield mesh_of(parallel, "cpu")
    finally:
        dist.destroy_process_group()
        _clear_sharding_prop_cache()
        gc.collect()


def _network(asked: Question) -> Network:
    """Returns the whole network."""
    model, work = asked.run.transformer, asked.run.workload
    network = build_network(
        model,
        dtype=DTYPES[work.precision],
        recompute=work.recompute,
        recomputed=recomputed_blocks(work.recompute_budget, model.layers) if work.recompute_budget else None,
        kernels=asked.run.kernels,
    )
    network.width_ratio = asked.recipe.model.width_ratio
    return network


def _names(asked: Question, place: int) -> tuple[str, ...]:
    """Returns the parameters of a pipeline's place."""
    with _member(asked.parallel, place) as mesh, FakeTensorMode():
        network = _network(asked)
        keep_stages(network, mesh)
        return tuple(name for name, _ in network.named_parameters())


def _of_a_rank(asked: Question, place: int) -> DryRank:
    """Returns what the first rank of a pipeline's place does, and all others of it alike."""
    parallel = asked.parallel
    with _member(parallel, place) as mesh, products_of(asked.run.cluster.device.kind):
        try:
            shares, memory, sent = _step(asked, mesh)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise RecipeError(
                "the step asks for the value of a tensor, which has none in a dry run",
                where="train",
                seen=str(error.func),
                fix="train.optimizer.name=adamw train.exec.update=fused",
            ) from error
    alike = parallel.ranks // parallel.pp
    return DryRank(
        rank=place * alike,
        alike=alike,
        shares=shares,
        memory=memory,
        planned_memory=planned_memory(asked.run, parallel, place=place),
        sent=sent,
        planned_sent=messages(asked.run, parallel, passes=asked.passes, place=place),
    )


def _step(asked: Question, mesh: Mesh) -> tuple[Mapping[str, Share], dict[str, float], tuple[Sent, ...]]:
    """Returns shapes, bytes at the peak of a step, and its messages."""
    train = asked.recipe.train
    with FakeTensorMode() as nothing:
        network = _network(asked)
        whole = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
        freeze(network, train.optimizer.groups)
        world_of(mesh, batch_sequences=asked.run.workload.batch_sequences).share(network, compiled=False)
        optimizers = Optimizers(network, train.optimizer, train.exec.update)
        optimizers = averaged(network, optimizers, train, 0)
        _make_states(network, optimizers)
        batch = {name: nothing.from_tensor(tensor) for name, tensor in asked.batch.items()}
        tracker, counter = tracker_of(network, optimizers), Collectives(asked.parallel)
        step = _tracked(asked, network, optimizers, tracker, mesh)
        with forward_hooks_alone() if asked.names else nullcontext(), tracker, counter:
            step(batch, 1.0)
        memory = by_class(tracker.get_tracker_snapshot("peak"))
        # The tracker of a sharded network knows one optimizer at most; state is there at every moment, so that the peak
        # is the same one without it.
        memory["optimizer"] = float(sum(size_bytes(local(tensor)) for _, tensor in optimizers.tensors()))
        shares = {
            name: Share(whole=whole[name], local=tuple(local(parameter).shape))
            for name, parameter in network.named_parameters()
        }
    return shares, memory, counter.sent()


def _tracked(
    asked: Question, network: Network, optimizers: Optimizers, tracker: MemTracker, mesh: Mesh
) -> TrainingStep:
    """Returns the step of this rank, with a tracker that looks on."""
    clock = PhaseClock(CPU)
    clock.start()
    options: dict[str, Any] = {
        "micro_batch": asked.parallel.micro_batch_sequences,
        "clip_norm": asked.recipe.train.clip_norm,
        "compiled": False,
        "mesh": mesh,
        "batch_sequences": asked.run.workload.batch_sequences,
        "tracker": tracker,
    }
    bound = asked.task, network, optimizers, clock
    if asked.names:
        return TrackedPipeline(*bound, copies=copies_in(asked.names), **options)
    return TrackedStep(*bound, **options)


def _make_states(network: Network, optimizers: Optimizers) -> None:
    """Makes the optimizer's state, so that the step that is counted is one of many and not the first."""
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    optimizers.step(1.0)
    optimizers.zero_grad()


def planned_memory(run: RunSpec, parallel: ParallelPlan, *, place: int = 0) -> dict[str, float]:
    """Returns the planned bytes of tensors by ``CLASSES``: without libraries, context, and what an allocator keeps."""
    stack = replace(run.stack, memory=replace(run.stack.memory, workspace_bytes=0.0))
    layouts = Layouts.of([parallel], [run.workload.recompute], run.workload)
    stages = None
    if parallel.pp > 1:
        stages = stages_at(run.transformer, parallel, place, micro_batches=int(layouts.micro_batches[0]))
    table = predict_memory(replace(run, stack=stack), layouts, stages=stages)
    use = {name: float(getattr(table, name)[0]) for name in (*CLASSES, "logits", "workspace")}
    temporary = use.pop("workspace") - library_bytes(run.transformer, run.cluster.device)
    return use | {"activations": use["activations"] + use.pop("logits") + temporary}
