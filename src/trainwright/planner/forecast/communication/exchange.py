"""What one training step sends between devices: seconds of each collective if nothing else ran beside it.

Volumes follow from model, workload and layout; ``collectives`` prices them. All quantities are arrays [L]. One micro
batch's forward pass on the slowest pipeline rank, unless a name says otherwise; the backward pass repeats what tensor,
context and expert parallelism send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.adapters import QUANTISED_FROZEN, adapter_parameters
from trainwright.planner.counts.between import base_bytes
from trainwright.planner.counts.layouts import MANY, Alike, Layouts, Numbers, Values, kinds_of
from trainwright.planner.counts.parameters import block_matrix_parameters, total_parameters
from trainwright.planner.counts.ranks import expert_tp, fullest, owners, rank_parameters, slowest_layers
from trainwright.planner.forecast.communication.collectives import (
    Fabric,
    Group,
    Placement,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    placement,
    reduce_scatter_s,
    send_recv_s,
)
from trainwright.planner.forecast.communication.dispatch import dispatch_s, token_bytes
from trainwright.planner.forecast.memory.per_parameter import has_half_gradients
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import Dispatch
from trainwright.spec.workload import Workload

Collective = Callable[[Fabric, Values, Group], Numbers]
KINDS = ("tensor", "context", "expert", "pipeline", "gather", "scatter", "gradients", "matrices")
"""Kinds of what is sent: ``Exchange`` has ``*_s`` and ``*_out_s`` of each."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Exchange:
    """Arrays [L] of seconds; a number where a network never sends so.

    ``tensor_s``, ``context_s``, ``expert_s`` and ``pipeline_s`` belong to one micro batch's forward pass; ``gather_s``
    collects sharded weights for one pass (zero but for ZeRO-3), ``scatter_s`` reduces and shards gradients of one
    micro batch (zero below ZeRO-2); ``gradients_s`` is what data parallelism exchanges once a step, ``matrices_s`` what
    Muon's ranks do in their update. Where devices share the host's bus these are the seconds on the bus alone, and
    ``*_out_s`` those on the network alone, if the other were no limit: only the first are longer for the sharing.
    """

    tensor_s: Values = 0.0
    context_s: Values = 0.0
    expert_s: Values = 0.0
    pipeline_s: Values = 0.0
    gather_s: Numbers
    scatter_s: Numbers
    gradients_s: Numbers
    matrices_s: Values = 0.0
    tensor_out_s: Values = 0.0
    context_out_s: Values = 0.0
    expert_out_s: Values = 0.0
    pipeline_out_s: Values = 0.0
    gather_out_s: Values = 0.0
    scatter_out_s: Values = 0.0
    gradients_out_s: Values = 0.0
    matrices_out_s: Values = 0.0
    overlapped: Values = 1.0
    """1 where gradients are exchanged as soon as a backward pass has made them, 0 where they wait for its end."""
    shards_overlapped: Values = 1.0
    """1 where sharded weights and gradients are sent while kernels run, 0 where these wait."""
    bus: Numbers
    """Logarithm of the devices that share the host's bus; 0 where they have links of their own."""

    def met(self, link: Values, bus_sharing: Values) -> Exchange:
        """Returns the seconds if a bus takes ``link`` times longer, and by ``bus_sharing`` powers of its devices."""
        times = link * np.exp(bus_sharing * self.bus)
        met: dict[str, Any] = {
            f"{kind}_s": np.maximum(times * getattr(self, f"{kind}_s"), getattr(self, f"{kind}_out_s"))
            for kind in KINDS
        }
        return replace(self, **met)


def exchange_over(run: RunSpec, layouts: Layouts, seconds: Callable[[Fabric], Mapping[str, Values]]) -> Exchange:
    """Returns what ``seconds`` says of each of ``KINDS`` over the run's links, apart where devices share a bus.

    Raises as ``Fabric.of``.
    """
    cluster, fabric = run.cluster, Fabric.of(run.cluster)
    on_bus, stack = not cluster.on_own_links, run.stack
    if cluster.devices == 1:
        sent: dict[str, Any] = {f"{kind}_s": np.zeros(len(layouts)) for kind in KINDS}
    else:
        sent = {f"{kind}_s": each for kind, each in seconds(fabric.inside if on_bus else fabric).items()}
    if on_bus and cluster.nodes > 1:
        sent |= {f"{kind}_out_s": each for kind, each in seconds(fabric.outside).items()}
    return Exchange(
        **sent,
        overlapped=float(stack.overlaps_gradients),
        shards_overlapped=np.where(layouts.zero_stage == 3, stack.overlaps_shards, stack.overlaps_gradients) + 0.0,
        bus=np.log(np.minimum(cluster.node.devices, layouts.devices)) if on_bus else np.zeros(len(layouts)),
    )


def exchange(run: RunSpec, layouts: Layouts) -> Exchange:
    """Returns every collective of a transformer's step, alone on its links; experts' as the stack sends to them.

    Raises as ``Fabric.of``.
    """
    passed, staged, shared = _alike(run, layouts)

    def seconds(fabric: Fabric) -> dict[str, Values]:
        return {
            **passed.counted(lambda some: _passed(run, some, fabric)),
            **staged.counted(lambda some: {"pipeline": _pipeline_s(run, some, fabric)}),
            **shared.counted(lambda some: _shared(run, some, fabric)),
        }

    return exchange_over(run, layouts, seconds)


def _alike(run: RunSpec, layouts: Layouts) -> tuple[Alike, Alike, Alike]:
    """Returns the layouts by what a pass sends inside of a stage, to the next stage, and for weights once a step.

    What passes send follows from how a model is divided, what is sent for weights from who shares these.
    """
    division = [kinds_of([layouts.tp, layouts.cp, layouts.ep, layouts.pp])] if len(layouts) >= MANY else []
    divided = [layouts.micro_batch, layouts.sequence_parallel, layouts.context, layouts.virtual_stages]
    divided += [] if run.transformer.experts is None else [expert_tp(run.transformer, layouts)]
    staged = [layouts.micro_batch, layouts.sequence_parallel, layouts.data_parallel, layouts.virtual_stages]
    gathered = (layouts.zero_stage == 3) & (layouts.sharing > 1)
    sharing = [layouts.dp_shard, layouts.dp_replicate, layouts.zero_stage, layouts.has("schedule", "dualpipe")]
    sharing += [np.where(gathered, layouts.virtual_stages, 0.0)]
    passed, sent_on, shared = (Alike.of(layouts, [*division, *each]) for each in (divided, staged, sharing))
    return passed, sent_on, shared


def _placed(layouts: Layouts, fabric: Fabric) -> Placement:
    degrees = {name: getattr(layouts, name) for name in ("tp", "cp", "ep", "dp_shard", "dp_replicate", "pp")}
    return placement(domain=fabric.domain, **degrees)


def _passed(run: RunSpec, layouts: Layouts, fabric: Fabric) -> dict[str, Values]:
    """Returns the seconds of what a micro batch sends for products, attention and experts of all its layers."""
    model, workload, groups = run.transformer, run.workload, _placed(layouts, fabric)
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp
    size, layers = workload.element_bytes, slowest_layers(model, layouts)
    experts_s = _experts_s(model, workload, layouts, fabric, run.stack.dispatch)
    return {
        "tensor": 2 * layers * _region_s(layouts, fabric, size * tokens * model.width, groups.tp),
        "context": layers * _context_s(model, layouts, size * tokens, fabric, groups.cp),
        "expert": layers * model.moe_layers / model.blocks * experts_s,
    }


def _pipeline_s(run: RunSpec, layouts: Layouts, fabric: Fabric) -> Numbers:
    """Returns the seconds in which all chunks of a stage send a micro batch's hidden states on."""
    tokens = layouts.micro_batch * run.workload.sequence_tokens / layouts.cp
    split = np.where(layouts.sequence_parallel > 0, layouts.tp, 1.0)
    hidden = run.workload.element_bytes * tokens * run.transformer.width / split
    return np.asarray(layouts.virtual_stages * send_recv_s(fabric, hidden, _placed(layouts, fabric).pp))


def _shared(run: RunSpec, layouts: Layouts, fabric: Fabric) -> dict[str, Values]:
    """Returns the seconds of weights, their gradients and Muon's matrices between the ranks that share them."""
    groups = _placed(layouts, fabric)
    gather_s, scatter_s, gradients_s = _weights(run, layouts, fabric, groups)
    matrices_s = _matrices_s(run, layouts, fabric, groups)
    return {"gather": gather_s, "scatter": scatter_s, "gradients": gradients_s, "matrices": matrices_s}


def _matrices_s(run: RunSpec, layouts: Layouts, fabric: Fabric, groups: Placement) -> Numbers:
    """Returns the seconds in which whole matrices are dealt over the ranks that share them, and directions come back.

    As this project's Muon does it: between the ranks that have rows of a matrix all send to all; along ``tp`` its
    owners gather it and show its direction. Entries are bf16, directions as they are multiplied, fp32 on a processor.
    """
    model, workload = run.transformer, run.workload
    if workload.optimizer != "muon" or workload.adapter is not None:
        return np.zeros(len(layouts))
    there, back = 2.0, 4.0 if run.cluster.device.kind == "cpu" else 2.0
    of_blocks = block_matrix_parameters(model) / total_parameters(model)
    elements = of_blocks * sum(rank_parameters(model, layouts)) / owners(layouts)
    dealt = sum(all_to_all_s(fabric, size * elements, groups.shard) for size in (there, back))
    shown = sum(all_gather_s(fabric, size * elements * layouts.tp, groups.tp) for size in (there, back))
    return np.where(owners(layouts) > 1, dealt, 0.0) + shown


def _region_s(layouts: Layouts, fabric: Fabric, hidden_bytes: Numbers, group: Group) -> Numbers:
    """Returns the seconds of one of a block's two regions, which tensor-parallel ranks enter and leave.

    With sequence parallelism by an all-gather and a reduce-scatter, which take as long, else by one all-reduce.
    """
    by_tokens = layouts.sequence_parallel > 0
    if by_tokens.all():
        return 2 * all_gather_s(fabric, hidden_bytes, group)
    whole = all_reduce_s(fabric, hidden_bytes, group)
    return np.where(by_tokens, 2 * all_gather_s(fabric, hidden_bytes, group), whole) if by_tokens.any() else whole


def _context_s(model: ModelSpec, layouts: Layouts, elements: Numbers, fabric: Fabric, group: Group) -> Numbers:
    """Returns the seconds in which a layer's ranks of ``cp`` exchange keys and values, or tokens for heads and back.

    ``elements`` are the bytes of one element of all tokens of a rank. Key heads that are fewer than the ranks are sent
    to several of them.
    """
    ranks, size = layouts.cp, elements * model.head_size / layouts.tp
    # More tensor-parallel ranks than key heads keep copies.
    gathered = all_gather_s(fabric, 2 * size * ranks * np.maximum(model.kv_heads, layouts.tp), group)
    key_heads = np.maximum(model.kv_heads, ranks * layouts.tp)
    there = all_to_all_s(fabric, size * (model.heads + 2 * key_heads), group)
    back = all_to_all_s(fabric, size * model.heads, group)
    return np.where(layouts.has("context", "gather"), gathered, there + back)


def _experts_s(
    model: ModelSpec, workload: Workload, layouts: Layouts, fabric: Fabric, dispatch: Dispatch
) -> Numbers | float:
    """Returns the seconds of a layer's tokens to their experts and back, on the fullest rank."""
    if model.experts is None:
        return 0.0
    # Tensor-parallel neighbours that do not divide an expert's matrices have other experts.
    group = placement(domain=fabric.domain, tp=expert_tp(model, layouts), ep=layouts.ep, dp_shard=layouts.ep).ep
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp / layouts.tp
    tokens = tokens * fullest(model, workload, layouts)
    there, back = token_bytes(model, workload, dispatch)
    return sum(dispatch_s(fabric, model.experts, dispatch, size * tokens, group) for size in (there, back))


def _kept_bytes(run: RunSpec) -> float:
    """Returns the bytes of a weight as it is gathered: a product's, but quantised ones of blocks come as they are kept.

    FSDP gathers them in four bits (bitsandbytes' ``quant_storage``; QLoRA, arXiv 2305.14314, section 3).
    """
    model, workload = run.transformer, run.workload
    size = workload.element_bytes
    if workload.adapter is None or workload.adapter.frozen not in QUANTISED_FROZEN:
        return size
    stored = base_bytes(model, workload.adapter, run.stack.memory)
    blocks = block_matrix_parameters(model) / total_parameters(model)
    return stored * blocks + size * (1 - blocks)


def _weights(run: RunSpec, layouts: Layouts, fabric: Fabric, groups: Placement) -> tuple[Numbers, Numbers, Numbers]:
    """Returns the seconds of gathering for a pass, scattering for a micro batch, and exchange once a step.

    Only trained weights have gradients to exchange. ZeRO-1 scatters gradients and gathers updated weights, in the
    products' precision, once a step (Rajbhandari et al., 2020, section 7). ZeRO-2 keeps no whole gradients over
    micro batches, so that it scatters those of each one, and gathers updated weights once a step; but for pipelines,
    which accumulate whole ones over all micro batches in flight (torch.distributed.pipelining reduces after the last).
    """
    model, workload = run.transformer, run.workload
    split, experts_group = expert_tp(model, layouts), groups.experts
    if model.experts is not None and np.any(split != layouts.tp):
        shard = layouts.dp_shard * layouts.tp / split
        experts_group = placement(domain=fabric.domain, tp=split, cp=layouts.cp, ep=layouts.ep, dp_shard=shard).experts
    size = workload.element_bytes
    reduced = workload.element_bytes == 2 and run.stack.memory.reduced_gradients
    reduced |= run.stack.memory.kernels == "own" and run.kernels.reduce == "bf16"
    gradient = 2.0 if reduced or has_half_gradients(workload) else 4.0
    dense, experts = rank_parameters(model, layouts)
    owners = layouts.sharing
    weights = (layouts.zero_stage == 3) & (owners > 1)
    gradients = weights | ((layouts.zero_stage == 2) & (owners > 1) & (layouts.pp == 1))

    # ZeRO-3 gathers and scatters block by block, with the latency of each (``fully_shard`` on every block).
    pieces = np.where(weights, slowest_layers(model, layouts) + 1.0, 1.0)

    def both(collective: Collective, dense_bytes: Numbers, experts_bytes: Numbers) -> Numbers:
        dense_s = collective(fabric, dense_bytes / pieces, groups.shard)
        if model.experts is None:
            return pieces * dense_s
        experts_s = np.where(experts_bytes > 0, collective(fabric, experts_bytes / pieces, experts_group), 0.0)
        return pieces * (dense_s + experts_s)

    gather = both(all_gather_s, _kept_bytes(run) * dense, size * experts)
    trained, trained_experts = dense, experts
    if workload.adapter is not None:
        trained = np.full(len(layouts), float(adapter_parameters(model, workload.adapter)))
        trained_experts = 0 * experts
    scatter, whole = (
        both(collective, gradient * trained, gradient * trained_experts)
        for collective in (reduce_scatter_s, all_reduce_s)
    )
    # What is gathered once a step is what every pass gathers, where all of it is trained.
    updated = gather if workload.adapter is None else both(all_gather_s, size * trained, size * trained_experts)
    inner = np.where((layouts.zero_stage > 0) & (owners > 1), scatter + updated, whole)
    owned = trained / owners + trained_experts / np.maximum(1.0, owners * layouts.tp / (layouts.ep * split))
    outer = all_reduce_s(fabric, gradient * owned, groups.dp_replicate)
    zero = np.zeros(len(layouts))
    once = outer + np.where(weights, zero, np.where(gradients, updated, inner))
    return np.where(weights, gather, zero), np.where(gradients, scatter, zero), once
