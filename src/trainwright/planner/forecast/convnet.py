"""Training a ResNet with data parallelism: what a step computes, moves, sends and keeps.

The same shapes as for transformers (``Work``, ``Exchange``, ``MemoryTable``), so that ``forecast`` puts them together
in one way. An image is one sequence of the workload.
"""

from __future__ import annotations

import numpy as np

from trainwright.planner.counts.images import check, saved_bytes, shared_parameters
from trainwright.planner.counts.layouts import Layouts, Values
from trainwright.planner.counts.parameters import MOMENTS_PER_PARAMETER, total_parameters
from trainwright.planner.forecast.communication.collectives import (
    Fabric,
    all_gather_s,
    all_reduce_s,
    placement,
    reduce_scatter_s,
)
from trainwright.planner.forecast.communication.exchange import Exchange, exchange_over
from trainwright.planner.forecast.memory.per_parameter import StateBytes, updates_by_tensor
from trainwright.planner.forecast.memory.table import MemoryTable, deviation, stuck_share
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Workload


def convnet_exchange(run: RunSpec, layouts: Layouts) -> Exchange:
    """Returns what data parallelism sends: gradients once a step, and weights too where they are sharded.

    Raises as ``Fabric.of``.
    """
    return exchange_over(run, layouts, lambda fabric: _seconds(run, layouts, fabric))


def _seconds(run: RunSpec, layouts: Layouts, fabric: Fabric) -> dict[str, Values]:
    workload, parameters = run.workload, total_parameters(run.convnet)
    groups = placement(domain=fabric.domain, dp_shard=layouts.dp_shard, dp_replicate=layouts.dp_replicate)
    size = parameters * workload.element_bytes
    gradients = parameters * (workload.element_bytes if workload.states == "pure" else 4.0)
    sharded = (layouts.zero_stage == 3) & (layouts.dp_shard > 1)
    inner = all_reduce_s(fabric, gradients, groups.shard)
    outer = all_reduce_s(fabric, gradients / layouts.dp_shard, groups.dp_replicate)
    return {
        "gather": np.where(sharded, all_gather_s(fabric, size, groups.shard), 0.0),
        "scatter": np.where(sharded, reduce_scatter_s(fabric, gradients, groups.shard), 0.0),
        "gradients": np.where(sharded, outer, inner + outer),
    }


def convnet_state_bytes(workload: Workload, memory: StackMemory) -> StateBytes:
    """Returns the bytes of one parameter by ``Workload.states``."""
    size = workload.element_bytes
    full, mixed = (size if workload.states == "pure" else 4.0), workload.states == "mixed" and size < 4
    return StateBytes(
        weight=size if mixed else full,
        gradient=full,
        optimizer=full * MOMENTS_PER_PARAMETER[workload.optimizer] + 4.0 * mixed,
        update=0.0 if updates_by_tensor(workload) else full * memory.update_copies,  # one filter's at most
    )


def convnet_memory(run: RunSpec, layouts: Layouts) -> MemoryTable:
    """Returns the peak memory of one device: at the start of the backward pass, or with all gradients at the update.

    The fp32 images that the loader hands over count as workspace. Raises as ``check``.
    """
    model, workload = run.convnet, run.workload
    check(workload, layouts)
    memory, size, one = run.stack.memory, workload.element_bytes, np.ones(len(layouts))
    each = convnet_state_bytes(workload, memory)
    owned = {stage: shared_parameters(model, layouts, from_stage=stage) for stage in (1, 2, 3)}
    gradients, update = each.gradient * owned[2], each.update * owned[1]
    images = layouts.micro_batch
    saved = memory.activations * saved_bytes(model, workload, images)
    # Logits, their fp32 probabilities and both gradients; labels.
    logits = images * (model.classes * (2 * size + 8.0) + 8.0)
    loaded = 4.0 * images * model.channels * model.image_size**2
    earlier = np.where((layouts.micro_batches > 1) | memory.flat_gradients, gradients, 0.0)
    late = gradients + update > earlier + saved + logits
    parts = {
        "weights": each.weight * owned[3],
        "gradients": np.where(late, gradients, earlier),
        "optimizer": each.optimizer * owned[1],
        "activations": np.where(late, 0.0, saved),
        "logits": np.where(late, 0.0, logits),
        "communication": memory.reduce_copies * gradients * (layouts.data_parallel > 1),
        "workspace": np.where(late, update, 0.0) + loaded + memory.workspace_bytes,
    }
    allocated = np.add.reduce(list(parts.values()))
    return MemoryTable(
        **parts,
        reserved_unused=memory.fragmentation * allocated,
        stuck=stuck_share(memory) * allocated,
        context=memory.context_bytes * one,
        spread=deviation(run) * one,
        last_stage=one < 0,
        moment=np.where(late, 3, 0),
        host_bytes=0 * one,
        nvme_bytes=0 * one,
        paged=0 * one,
    )
