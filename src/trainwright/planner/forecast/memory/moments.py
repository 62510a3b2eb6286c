"""The moments of a step at which a device's memory can peak, as sums of classes.

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

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.adapters import QUANTISED_FROZEN
from trainwright.planner.counts.between import is_quantised
from trainwright.planner.counts.layouts import Numbers
from trainwright.planner.counts.parameters import matrices
from trainwright.planner.counts.process import KEEPS_GRADIENTS
from trainwright.planner.forecast.memory.activations import (
    block_bytes,
    mask_bytes,
    micro_tokens,
    our_bytes,
    transient_bytes,
    wide_tokens,
    widened,
)
from trainwright.planner.forecast.memory.states import Kept, MemoryCase, reduces_in_half
from trainwright.spec.stack import STASH

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
        """Returns the bytes of all classes."""
        return self.gradients + self.activations + self.logits + self.communication + self.workspace


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pass:
    """Bytes [2, L] of one training pass.

    ``saved`` is kept for the backward pass by all micro batches in flight, ``beside`` by one outside of its layers;
    ``kept_again`` what FSDP around adapters keeps a second time; ``block`` one block that is computed again;
    ``transient`` gradients in flight inside of one; ``kept_logits`` logits that a pipeline's engine does not let go;
    ``gone`` is what was saved and waits in host memory.
    """

    saved: Numbers
    beside: Numbers
    kept_again: Numbers
    block: Numbers
    transient: Numbers
    logits: Numbers
    kept_logits: Numbers
    gone: Numbers

    @property
    def inside(self) -> Numbers:
        """Returns the bytes that the backward pass needs inside one block."""
        return self.block + self.transient


def pass_bytes(case: MemoryCase) -> Pass:
    """Returns the bytes that one pass needs."""
    stages = case.stages
    dense, mixed = _of_layers(case, partial(block_bytes, case))
    full = case.layouts.has("recompute", "full")
    # Dropout of the embedding keeps its mask (Korthikanti et al., 2022, arXiv 2205.05198, section 4.3, recall).
    mask = stages.has_embedding * mask_bytes(case) * case.model.width * wide_tokens(case)
    beside = our_bytes(case).beside if case.memory.kernels == "own" else mask
    selective = case.layouts.has("recompute", "selective") & (case.memory.kernels == "own")
    waiting, mixed_waiting = _waiting(case, dense, mixed)
    layers = stages.dense_layers * waiting + stages.moe_layers * mixed_waiting
    sent = np.where(case.memory.holds_outputs, 1.0 - stages.has_head, 0.0) * input_bytes(case)
    beside = beside + sent
    whole = stages.passes * (beside + layers)
    saved = np.minimum(whole, stash_bytes(case)) if case.workload.activation_offload else whole
    wrapped = case.sharded * (case.adapter is not None)
    block = _larger(case, dense, mixed)
    if case.process is None:
        each = _of_layers(case, lambda mixture: widened(case, partial(transient_bytes, mixture=mixture)))
        transient = _larger(case, *each)
    else:
        transient = case.process.transient * block + case.process.waste * saved
    return Pass(
        saved=saved,
        beside=np.asarray(beside),
        kept_again=np.where(full, wrapped * (case.memory.adapter_residuals - 1.0), 0.0) * saved,
        block=np.where(full, block, np.where(selective, made_again(case, dense, mixed), 0.0)),
        transient=transient,
        logits=logits_bytes(case),
        kept_logits=buffered_logit_bytes(case, micro_batches=2),
        gone=np.asarray(whole - saved),
    )


def made_again(case: MemoryCase, dense: Numbers, mixed: Numbers) -> Numbers:
    """Returns the bytes [2, L] of the larger block that selective recomputation makes again, its input apart."""
    if case.memory.kernels != "own":
        return np.zeros(1)
    own, inputs = our_bytes(case), input_bytes(case)
    return _larger(case, dense - own.dense.kept + inputs, mixed - own.mixed.kept + inputs)


def waiting_bytes(case: MemoryCase) -> tuple[Numbers, Numbers]:
    """Returns the bytes [L] of an average layer without and with experts that wait for the backward pass."""
    return _waiting(case, *_of_layers(case, partial(block_bytes, case)))


def _of_layers(case: MemoryCase, count: Callable[..., Numbers]) -> tuple[Numbers, Numbers]:
    """Returns what ``count`` says of a layer without experts and of one with them; the same where none has any."""
    dense = count(mixture=False)
    return dense, dense if case.model.experts is None else count(mixture=True)


def _waiting(case: MemoryCase, dense: Numbers, mixed: Numbers) -> tuple[Numbers, Numbers]:
    """Returns what waits of layers that keep ``dense`` and ``mixed`` bytes."""
    full, share = case.layouts.has("recompute", "full"), case.recomputed
    again, mixed_again = dense, mixed
    if case.memory.kernels == "own":
        own, selective = our_bytes(case), case.layouts.has("recompute", "selective")
        again, mixed_again = (
            np.where(selective, block.kept, each) for block, each in ((own.dense, dense), (own.mixed, mixed))
        )
    again, mixed_again = np.where(full, input_bytes(case), again), np.where(full, input_bytes(case), mixed_again)
    return share * again + (1.0 - share) * dense, share * mixed_again + (1.0 - share) * mixed


def stash_bytes(case: MemoryCase) -> Numbers:
    """Returns the bytes [L] of saved tensors that stay while they are copied to host memory: the largest, of each.

    With full recomputation only the layers' inputs are saved.
    """
    model, experts = case.model, case.model.experts
    routed = 0 if experts is None else experts.active * experts.ffn_width
    inner = case.element_bytes * max(model.ffn_width, routed, model.heads * model.score_size)
    inside = np.maximum(inner * micro_tokens(case) / case.layouts.tp, input_bytes(case))
    return STASH * np.where(case.layouts.has("recompute", "full"), input_bytes(case), inside)


def _larger(case: MemoryCase, dense: Numbers, mixed: Numbers) -> Numbers:
    """Returns the larger bytes of the kinds of layers that a stage has."""
    stages = case.stages
    return np.maximum(np.where(stages.dense_layers > 0, dense, 0.0), np.where(stages.moe_layers > 0, mixed, 0.0))


def cast_bytes(case: MemoryCase) -> Numbers:
    """Returns the bytes of weights that ``torch.autocast`` keeps in the compute dtype beside fp32 ones.

    FSDP casts what it gathers instead, and this trainer's casts are counted with its blocks.
    """
    casts = case.workload.states == "fp32" and case.element_bytes < 4 and case.adapter is None
    if not casts or case.memory.kernels == "own":
        return np.zeros_like(case.stages.total)
    return case.element_bytes * case.stages.total * (1.0 - case.sharded)


def input_bytes(case: MemoryCase) -> Numbers:
    """Returns the bytes [L] of a layer's input: tokens x width x element, divided by sequence parallelism."""
    return widened(case, lambda each: each.element_bytes * each.model.width * wide_tokens(each))


def logits_bytes(case: MemoryCase) -> Numbers:
    """Returns the bytes at the loss: tokens x vocabulary x all copies / tp, and copies of the hidden states."""
    memory = case.memory
    if memory.kernels == "own":
        return case.stages.has_head * our_bytes(case).loss
    each, tokens, head = memory.logit_bytes, micro_tokens(case), 0.0
    if case.workload.fused_loss:
        each, head = memory.fused_logit_bytes, memory.loss_head_bytes * case.model.width
        tokens = np.minimum(tokens, memory.loss_chunk_tokens or np.inf)
    outputs = case.model.vocabulary if case.model.makes_logits else case.model.classes
    logits = (each * (1 + case.model.further_layers) * tokens + head) * outputs / case.layouts.tp
    at_loss = case.stages.has_head * (logits + memory.hidden_copies * input_bytes(case))
    return np.asarray(at_loss + buffered_logit_bytes(case, micro_batches=1))


def buffered_logit_bytes(case: MemoryCase, *, micro_batches: int) -> Numbers:
    """Returns the bytes [2, L] of fp32 logits that DeepSpeed's pipeline engine keeps on its last stage.

    It has two buffers or more for outputs, and overwrites but never frees the last stage's (``runtime/pipe/engine.py``,
    ``_exec_backward_pass``; ``schedule.py``, ``num_pipe_buffers``): of the micro batch before at the loss, and of both
    while blocks go backward.
    """
    if not case.memory.holds_outputs:
        return np.zeros_like(case.stages.total)
    before = np.minimum(case.layouts.micro_batches, 2.0) - (2 - micro_batches)
    each = 4.0 * case.model.vocabulary * micro_tokens(case) / case.layouts.tp
    return np.asarray(case.stages.has_head * before * each)


def gathered_bytes(case: MemoryCase) -> tuple[Numbers, Numbers]:
    """Returns the bytes of gathered weights, at the loss and in the backward pass.

    Embedding and head, which FSDP's root keeps gathered, with one layer at the loss; with the current and the next
    layer and one layer's gradients in the backward pass. Between the micro batches of a pipeline weights stay gathered
    and gradients whole, in fp32 (torch's FSDP2 does not reshard there). Offloaded weights are gathered alike.

    This trainer gathers the root in fp32, for the head adds up its gradient in it, and no layer is left at the loss; of
    its layers' gradients see ``backward_bytes``. Below ZeRO-3 all stays gathered, frozen weights too, but for those
    that are quantised, which are no parameters.
    """
    frozen, stages, own, once = case.adapter is not None, case.stages, case.own, case.gathers_once
    gathers = (case.sharded > 0) | once | case.layouts.offloads_weights
    root, layer = stages.tables * (4.0 if own else case.element_bytes), stages.layer * case.frozen_bytes
    gradient = 0.0 if frozen else 2.0 if reduces_in_half(case) else 4.0
    quantised = case.adapter is not None and case.adapter.frozen in QUANTISED_FROZEN
    blocks = 0.0 if quantised and case.memory.kernels == "own" else stages.total - stages.tables
    every = blocks * case.frozen_bytes + root
    stays = [case.layouts.pp > 1, once]
    at_loss = np.select(stays, [every + stages.total * gradient, every], root if own else root + layer)
    further = root + layer * (2.0 if own or frozen else 3.0)
    backward = np.select(stays, [every + stages.total * gradient, every], further)
    return np.where(gathers, at_loss, 0.0), np.where(gathers, backward, 0.0)


def backward_bytes(case: MemoryCase, step: Pass) -> tuple[Numbers, Numbers]:
    """Returns the bytes [2, L] inside of a block that goes backward beyond those saved, and of weights gathered then.

    Where this trainer shards, the head's whole gradient waits until FSDP reduces it with the embedding's. A block's
    gradients are reduced in fp32, when it has let go of what it kept: the worse of the first block, without gradients
    to reduce, and the second one.
    """
    inside, gathered = step.inside + step.kept_again, gathered_bytes(case)[1]
    if case.memory.kernels != "own" or case.adapter is not None:
        return inside, gathered
    stages, layouts = case.stages, case.layouts
    at_once = case.gathers_once & ((layouts.zero_stage >= 2) | (layouts.micro_batches <= 1))
    shards = ((case.sharded > 0) | at_once) & (layouts.pp == 1)
    head = shards * stages.has_head * (4.0 * case.model.vocabulary * case.model.width / case.layouts.tp)
    reduced, kept = shards * stages.layer * 4.0, alive_bytes(case, step)
    second = reduced > kept
    return np.asarray(inside + head - np.where(second, kept, 0.0)), np.asarray(
        gathered + np.where(second, reduced, 0.0)
    )


def alive_bytes(case: MemoryCase, step: Pass) -> Numbers:
    """Returns the bytes [2, L] that one block keeps for the backward pass."""
    return np.asarray(step.saved / np.maximum(1.0, case.stages.layers * case.stages.passes))


def dequantised_matrix_bytes(case: MemoryCase) -> Numbers:
    """Returns the bytes [L] of a block's largest quantised matrix, as a product needs it."""
    blocks = (matrix for matrix in matrices(case.model) if matrix.part not in ("head", "stem"))
    adapter, memory = case.adapter, case.memory
    quantised = (each.elements for each in blocks if adapter is not None and is_quantised(each, adapter, memory))
    return max(quantised, default=0) * case.element_bytes / case.layouts.tp


def moments_of(case: MemoryCase, states: Kept, step: Pass | None = None) -> tuple[Moment, ...]:
    """Returns the moments in the order of ``MOMENTS``; ``step`` is the case's pass, where it is counted already."""
    step, stages = step or pass_bytes(case), case.stages
    none = np.zeros_like(step.saved)
    heap = case.process is not None and case.device_kind in KEEPS_GRADIENTS
    earlier = np.where((case.layouts.micro_batches > 1) | case.memory.flat_gradients | heap, 1.0, 0.0)
    earlier = np.where(_whole_until_the_end(case) | _forward_first(case), 0.0, earlier)
    # The head's gradient is the first; it is there while the last block goes backward.
    first = np.maximum(earlier, stages.has_head * stages.tables / stages.total)
    first = np.where(_whole_until_the_end(case), 0.0, first)
    first = np.where(case.workload.update_in_backward, 1.0, first)
    at_loss, gathered = gathered_bytes(case)
    within, backward = backward_bytes(case, step)
    casts = cast_bytes(case)
    inside = casts + dequantised_matrix_bytes(case)
    beside = casts if case.process is None else casts + step.inside
    alive, lost = alive_bytes(case, step) + step.inside, waiting_loss_bytes(case)
    moments = [
        Moment(earlier * states.gradients, step.saved, step.logits + lost, at_loss, beside),
        Moment(first * states.gradients, step.saved + within, step.kept_logits + lost, backward, inside),
        Moment(states.gradients, alive, step.kept_logits, gathered + _root_bytes(case, alive), inside),
        Moment(states.gradients, none, step.kept_logits, none, states.update),
    ]
    if case.memory.loads_whole and case.adapter is not None:
        moments.append(Moment(none, none, none, case.sharded * stages.total * case.frozen_bytes, none))
    return tuple(moments)


def _root_bytes(case: MemoryCase, alive: Numbers) -> Numbers:
    """Returns the bytes [2, L] by which the root's reduction exceeds the last block that goes backward.

    ZeRO-2 of this trainer reduces between micro batches, while all weights stay gathered: the gradients of embedding
    and head, and the copy that is sent, in fp32. With ZeRO-3, and after the last micro batch, blocks are free by then.
    """
    layouts = case.layouts
    between = case.own & case.gathers_once & (layouts.zero_stage >= 2) & (layouts.micro_batches > 1) & (layouts.pp == 1)
    return np.where(between, np.maximum(0.0, 2 * 4.0 * case.stages.tables - alive), 0.0)


def _whole_until_the_end(case: MemoryCase) -> NDArray[np.bool_]:
    """Returns True [L] where gradients are whole through all micro batches, and counted with what is gathered."""
    found: NDArray[np.bool_] = ((case.sharded > 0) | case.gathers_once) & (case.layouts.pp > 1) & case.own
    return found


def _forward_first(case: MemoryCase) -> NDArray[np.bool_]:
    """Returns True [L] where no backward pass begins before the last forward pass ends: GPipe's."""
    return case.layouts.has("schedule", "gpipe") & (case.layouts.pp > 1) & (not case.memory.flat_gradients)


def waiting_loss_bytes(case: MemoryCase) -> Numbers:
    """Returns the bytes [2, L] of gradients that this trainer's loss has made for other micro batches in flight.

    It makes those of hidden states and of the head in the forward pass. Where a pipeline's last stage goes on with
    further forward passes before it goes back, each micro batch keeps its own.
    """
    if case.memory.kernels != "own":
        return np.zeros_like(case.stages.total)
    several = _forward_first(case) | (case.layouts.has("schedule", "zero_bubble") & (case.layouts.pp > 1))
    each = input_bytes(case) + 4.0 * case.model.vocabulary * case.model.width / case.layouts.tp
    return np.asarray(np.where(several, case.stages.passes - 1, 0.0) * case.stages.has_head * each)


def bucket_bytes(case: MemoryCase, states: Kept) -> Numbers:
    """Returns the bytes of the data-parallel reduction's buffers.

    Copies of all gradients (torch's DDP, also where the optimizer's state alone is shared), or buckets of a fixed size,
    one in which gradients are reduced and one in which weights are gathered (DeepSpeed).
    """
    layouts = case.layouts
    replicated = (layouts.dp_replicate * layouts.sharing > 1) & ((layouts.zero_stage < 2) | (layouts.sharing == 1))
    copies = np.where(replicated, case.memory.reduce_copies, 0.0) * states.gradients
    return copies + 2 * case.element_bytes * np.minimum(case.memory.bucket_elements, case.stages.dense)
