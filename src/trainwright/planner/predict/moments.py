"""The four moments of a step at which a device's memory can peak, as sums of classes.

Arrays have the shape [2, L]: first and last pipeline stage of each of L layouts (see ``states``). Weights and the
optimizer's state are there at every moment; a ``Moment`` is what comes on top.

* loss: all that is saved for the backward pass, logits with their copies;
* backward: the same without logits; one block, computed again where it must be, and gradients in flight;
* end: all gradients; nothing is saved any more but for the first block;
* update: all gradients, and the update's temporaries.

Where a framework loads whole weights before it shards them, *load* is a fifth. An evaluation keeps less than a training
pass, and a checkpoint gathers one tensor after the other, so that neither is a peak of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from trainwright.planner.predict.activations import layer_bytes, micro_tokens, transient_bytes
from trainwright.planner.predict.layouts import Layouts, Numbers
from trainwright.planner.predict.states import Kept, Stages, element_bytes, frozen_bytes, sizes
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Workload

MOMENTS = ("loss", "backward", "end", "update", "load")


class Moment(NamedTuple):
    """Bytes [2, L] by class."""

    gradients: Numbers
    activations: Numbers
    logits: Numbers
    communication: Numbers
    workspace: Numbers

    @property
    def total(self) -> Numbers:
        """All of them."""
        return self.gradients + self.activations + self.logits + self.communication + self.workspace


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pass:
    """Bytes [2, L] of one training pass."""

    saved: Numbers
    """Kept for the backward pass, by all micro batches in flight."""
    kept_again: Numbers
    """What FSDP around adapters keeps a second time while it goes backward."""
    block: Numbers
    """One block, computed again in the backward pass; nothing without full recomputation."""
    transient: Numbers
    """Gradients in flight inside a block."""
    logits: Numbers
    gathered_at_loss: Numbers
    gathered_backward: Numbers


def pass_bytes(
    model: ModelSpec, workload: Workload, layouts: Layouts, stages: Stages, memory: StackMemory
) -> Pass:
    """What one pass needs; each line of it is a function below."""
    dense = block_bytes(model, workload, layouts, memory, mixture=False)
    mixed = block_bytes(model, workload, layouts, memory, mixture=True)
    full = layouts.has("recompute", "full")
    inputs = stages.layers * input_bytes(model, workload, layouts)
    saved = stages.passes * np.where(full, inputs, stages.dense_layers * dense + stages.moe_layers * mixed)
    wrapped = is_sharded(layouts) & (workload.adapter is not None)
    at_loss, backward = gathered_bytes(model, workload, layouts, stages, memory)
    return Pass(
        saved=saved,
        kept_again=np.where(full & wrapped, memory.adapter_residuals - 1.0, 0.0) * saved,
        block=np.where(full, _larger(stages, dense, mixed), 0.0),
        transient=_larger(
            stages,
            transient_bytes(model, workload, layouts, mixture=False),
            transient_bytes(model, workload, layouts, mixture=True),
        ),
        logits=logits_bytes(model, workload, layouts, stages, memory),
        gathered_at_loss=at_loss,
        gathered_backward=backward,
    )


def _larger(stages: Stages, dense: Numbers, mixed: Numbers) -> Numbers:
    """The larger of the kinds of layers that a stage has."""
    return np.maximum(np.where(stages.dense_layers > 0, dense, 0.0), np.where(stages.moe_layers > 0, mixed, 0.0))


def block_bytes(
    model: ModelSpec, workload: Workload, layouts: Layouts, memory: StackMemory, *, mixture: bool
) -> Numbers:
    """Bytes [L] that one layer keeps, by the kernels that the layout's ``compile`` says."""
    plain = sum(layer_bytes(model, workload, layouts, memory, mixture=mixture).values())
    fused = replace(memory, kernels="compiled")
    compiled = sum(layer_bytes(model, workload, layouts, fused, mixture=mixture).values())
    return memory.activations * np.where(layouts.compile > 0, compiled, plain)


def input_bytes(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """A layer's input [L]: tokens x width x element, divided by tensor parallelism with sequence parallelism only."""
    share = np.where(layouts.sequence_parallel > 0, layouts.tp, 1.0)
    return element_bytes(workload) * model.width * micro_tokens(workload, layouts) / share


def logits_bytes(
    model: ModelSpec, workload: Workload, layouts: Layouts, stages: Stages, memory: StackMemory
) -> Numbers:
    """Logits at the loss: tokens x vocabulary x (bytes of all copies) / tp, and some copies of the hidden states."""
    each = memory.fused_logit_bytes if workload.fused_loss else memory.logit_bytes
    logits = each * model.vocabulary * micro_tokens(workload, layouts) / layouts.tp
    return stages.has_head * (logits + memory.hidden_copies * input_bytes(model, workload, layouts))


def is_sharded(layouts: Layouts) -> Numbers:
    """Where weights are shared by more than one rank (ZeRO stage 3, FSDP)."""
    found: Numbers = (layouts.zero_stage >= 3) & (layouts.dp_shard * layouts.cp > 1)
    return found


def gathered_bytes(
    model: ModelSpec, workload: Workload, layouts: Layouts, stages: Stages, memory: StackMemory
) -> tuple[Numbers, Numbers]:
    """What sharded weights are gathered into, at the loss and in the backward pass.

    Embedding and head, which FSDP's root keeps gathered, with one layer at the loss; with the current and the next
    layer and one layer's gradients in the backward pass. Between the micro batches of a pipeline weights stay gathered
    and gradients whole, in fp32 (torch's FSDP2 does not reshard there). Offloaded weights are gathered alike.
    """
    frozen = workload.adapter is not None
    size = element_bytes(workload)
    each = size if workload.adapter is None else frozen_bytes(workload.adapter, memory)
    gathers = is_sharded(layouts) | layouts.has("offload", "all")
    root, layer = stages.tables * size, stages.layer * each
    whole = stages.total * (each + (0.0 if frozen else 4.0))
    piped = layouts.pp > 1
    at_loss = np.where(piped, whole, root + layer)
    backward = np.where(piped, whole, root + layer * (2.0 if frozen else 3.0))
    return np.where(gathers, at_loss, 0.0), np.where(gathers, backward, 0.0)


def dequantised_bytes(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """The largest quantised matrix of a block as a product needs it."""
    adapter = workload.adapter
    if adapter is None or adapter.frozen not in ("nf4", "int4", "int8"):
        return 0.0 * layouts.tp
    return sizes(model).largest_block_matrix * element_bytes(workload) / layouts.tp


def moments_of(
    model: ModelSpec, workload: Workload, layouts: Layouts, stages: Stages, states: Kept, memory: StackMemory
) -> tuple[Moment, ...]:
    """The moments in the order of ``MOMENTS``."""
    step = pass_bytes(model, workload, layouts, stages, memory)
    none = np.zeros_like(step.saved)
    earlier = np.where((layouts.micro_batches > 1) | memory.flat_gradients, 1.0, 0.0)
    # The head's gradient is the first; it is there while the last block goes backward.
    first = np.maximum(earlier, stages.has_head * stages.tables / stages.total)
    inside = step.block + step.transient
    dequantised = dequantised_bytes(model, workload, layouts)
    alive = step.saved / np.maximum(1.0, stages.layers * stages.passes)
    found = [
        Moment(earlier * states.gradients, step.saved, step.logits, step.gathered_at_loss, none),
        Moment(
            first * states.gradients, step.saved + step.kept_again + inside, none, step.gathered_backward,
            none + dequantised,
        ),
        Moment(states.gradients, alive + inside, none, step.gathered_backward, none + dequantised),
        Moment(states.gradients, none, none, none, states.update),
    ]  # fmt: skip
    if memory.loads_whole and workload.adapter is not None:
        whole = stages.total * frozen_bytes(workload.adapter, memory)
        found.append(Moment(none, none, none, np.where(is_sharded(layouts), whole, 0.0), none))
    return tuple(found)


def bucket_bytes(
    workload: Workload, layouts: Layouts, stages: Stages, states: Kept, memory: StackMemory
) -> Numbers:
    """Buffers of the data-parallel reduction: copies of all gradients (torch's DDP), or buckets of a fixed size, one in
    which gradients are reduced and one in which weights are gathered."""
    replicated = (layouts.dp_replicate > 1) & (layouts.dp_shard == 1)
    copies = np.where(replicated, memory.reduce_copies, 0.0) * states.gradients
    return copies + 2 * element_bytes(workload) * np.minimum(memory.bucket_elements, stages.dense)
