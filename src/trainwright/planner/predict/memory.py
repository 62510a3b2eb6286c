"""Peak memory of one device for many layouts at once: classes, moments, and what torch and the driver report.

A run's peak is the largest of four moments, each on the first and on the last pipeline stage:

* loss: all that is saved for the backward pass, logits with their copies and gradients;
* backward: the same without the logits, one block recomputed where it must be, and its gradients in flight;
* end: all gradients, nothing saved any more;
* update: all gradients, the optimizer's state, and the update's temporaries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trainwright.planner.predict.activations import layer_bytes, micro_tokens, transient_bytes
from trainwright.planner.predict.layouts import Layouts, Numbers
from trainwright.planner.predict.states import Kept, Stages, element_bytes, frozen_bytes, kept, sizes, stages_of
from trainwright.spec.device import ClusterSpec, DeviceSpec
from trainwright.spec.measures import MemoryUse
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import MemoryKind, Stack, StackMemory
from trainwright.spec.workload import Workload

Stage = Literal["worst", "first", "last"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MemoryTable:
    """Bytes [L] by class at the peak, on the worst stage (or the one asked for)."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    activations: Numbers
    logits: Numbers
    communication: Numbers
    workspace: Numbers
    reserved_unused: Numbers
    context: Numbers
    spread: Numbers
    last_stage: Numbers
    moment: Numbers
    host_bytes: Numbers

    @property
    def allocated_bytes(self) -> Numbers:
        """What torch calls allocated."""
        return (
            self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.communication
            + self.workspace
        )  # fmt: skip

    @property
    def reserved_bytes(self) -> Numbers:
        return self.allocated_bytes + self.reserved_unused

    @property
    def device_bytes(self) -> Numbers:
        return self.reserved_bytes + self.context

    def reported(self, kind: MemoryKind) -> Numbers:
        return {"allocated": self.allocated_bytes, "reserved": self.reserved_bytes, "device": self.device_bytes}[kind]


def predict_memory(
    model: ModelSpec, workload: Workload, layouts: Layouts, cluster: ClusterSpec, stack: Stack, *, stage: Stage = "worst"
) -> MemoryTable:
    memory = stack.memory
    stages = stages_of(model, layouts)
    states = kept(model, workload, layouts, stages, memory)
    saved, block = saved_bytes(model, workload, layouts, stages, memory)
    gathered = gathered_bytes(model, workload, layouts, stages)
    logits = logits_bytes(model, workload, layouts, stages, memory)
    transient = np.maximum(
        np.where(stages.dense_layers > 0, transient_bytes(model, workload, layouts, mixture=False), 0.0),
        np.where(stages.moe_layers > 0, transient_bytes(model, workload, layouts, mixture=True), 0.0),
    )
    always = memory.flat_gradients or False
    earlier = np.where((layouts.micro_batches > 1) | always, 1.0, 0.0)
    buckets = memory.reduce_copies * states.gradients * np.where((layouts.dp_replicate > 1) & (layouts.dp_shard == 1), 1.0, 0.0)
    buckets = buckets + 2 * element_bytes(workload) * np.minimum(memory.bucket_elements, stages.dense)
    full = np.where(layouts.has("recompute", "full"), 1.0, 0.0)
    tables = np.where(stages.dense + stages.experts > 0, stages.tables / (stages.dense + stages.experts), 0.0)
    zero = np.zeros_like(saved)
    again = 0.0
    if workload.adapter is not None:
        again = saved * full * np.where((layouts.zero_stage >= 3) & (layouts.dp_shard > 1), memory.adapter_residuals - 1, 0.0)
    # each moment: gradients, activations, logits, communication, workspace
    moments = [
        (earlier * states.gradients, saved, logits, gathered[0], zero),
        (np.maximum(earlier, tables * stages.has_head) * states.gradients, saved + again + full * block + transient, zero, gathered[1], zero),
        (states.gradients, (saved / np.maximum(1.0, stages.layers * stages.passes) + full * block + transient), zero, gathered[1], zero),
        (states.gradients, zero, zero, zero, states.update),
    ]
    if memory.loads_whole and workload.adapter is not None:
        # whole weights beside this rank's share, which is counted as weights already
        whole = stages.total * size_of_frozen(workload, memory)
        moments.append((zero, zero, zero, np.where((layouts.zero_stage >= 3) & (layouts.dp_shard > 1), whole, 0.0), zero))
    totals = np.stack([sum(parts) for parts in moments])
    which = np.argmax(totals, axis=0)
    pick = [np.take_along_axis(np.stack([m[i] for m in moments]), which[None], axis=0)[0] for i in range(5)]
    total = totals.max(axis=0) + states.weights + states.optimizer
    if stage == "worst":
        at = np.argmax(total, axis=0)
    else:
        at = np.full(total.shape[1], 0 if stage == "first" else 1)
    def on(x):
        return np.take_along_axis(x, at[None], axis=0)[0]
    gradients, activations, lg, comm, work = (on(x) for x in pick)
    workspace = work + memory.workspace_bytes + library_bytes(model, cluster.device)
    weights, optimizer = on(states.weights), on(states.optimizer)
    comm = comm + on(buckets)
    allocated = weights + optimizer + gradients + activations + lg + comm + workspace
    ones = np.ones_like(weights)
    return MemoryTable(
        weights=weights, gradients=gradients, optimizer=optimizer, activations=activations, logits=lg, communication=comm,
        workspace=workspace, reserved_unused=memory.fragmentation * allocated, context=memory.context_bytes * ones,
        spread=memory.spread * ones, last_stage=at, moment=on(which), host_bytes=0 * ones,
    )


def size_of_frozen(workload: Workload, memory: StackMemory) -> float:
    return element_bytes(workload) if workload.adapter is None else frozen_bytes(workload.adapter, memory)


def saved_bytes(model, workload, layouts, stages, memory):
    compiled = replace(memory, kernels="compiled")
    def total(mixture):
        return np.where(layouts.compile > 0, sum(layer_bytes(model, workload, layouts, compiled, mixture=mixture).values()), sum(layer_bytes(model, workload, layouts, memory, mixture=mixture).values()))
    per_dense = total(False)
    per_moe = total(True)
    tokens = micro_tokens(workload, layouts)
    size = element_bytes(workload)
    wide = tokens / np.where(layouts.sequence_parallel > 0, layouts.tp, 1.0)
    residual = size * model.width * wide
    full = layouts.has("recompute", "full")
    block = memory.activations * np.maximum(np.where(stages.dense_layers > 0, per_dense, 0.0), np.where(stages.moe_layers > 0, per_moe, 0.0))
    layers = stages.dense_layers * per_dense + stages.moe_layers * per_moe
    saved = stages.passes * np.where(full, stages.layers * residual, memory.activations * layers)
    return saved, block


def gathered_bytes(model, workload, layouts, stages):
    size = element_bytes(workload)
    each = (size if workload.adapter is None or workload.adapter.frozen in ("bf16", "fp32") else 0.56)
    sharded = (layouts.zero_stage >= 3) & (layouts.dp_shard * layouts.cp > 1)
    root = stages.tables * size
    layer = stages.layer * each
    grads = layer if workload.adapter is None else 0.0
    # Between micro batches of a pipeline weights stay gathered and gradients whole (torch's FSDP2 does not reshard).
    whole = stages.total * (each + (4.0 if workload.adapter is None else 0.0))
    piped = layouts.pp > 1
    return (
        np.where(sharded, np.where(piped, whole, root + layer), 0.0),
        np.where(sharded, np.where(piped, whole, root + 2 * layer + grads), 0.0),
    )


def logits_bytes(model, workload, layouts, stages, memory):
    tokens = micro_tokens(workload, layouts)
    size = element_bytes(workload)
    each = memory.fused_logit_bytes if workload.fused_loss else memory.logit_bytes
    wide = tokens / np.where(layouts.sequence_parallel > 0, layouts.tp, 1.0)
    return stages.has_head * (each * model.vocabulary * tokens / layouts.tp + memory.hidden_copies * size * model.width * wide)


def library_bytes(model: ModelSpec, device: DeviceSpec) -> float:
    """cuBLAS's workspace: 32 MiB from compute capability 9.0 on, 8 MiB before (cuBLAS manual, "workspaces").

    Grouped products of experts run on four streams with a workspace each.
    """
    if device.compute_capability is None:
        return 0.0
    one = 32.0 * (1 << 20) if float(device.compute_capability) >= 9 else 8.0 * (1 << 20)
    return one * (1 if model.experts is None else 5)
