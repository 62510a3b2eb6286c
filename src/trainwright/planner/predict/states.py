"""Bytes that outlive a pass: weights, gradients, the optimizer's state, frozen weights; on the first and last stage.

Arrays have the shape [2, L]: the first and the last pipeline stage of each of L layouts. One of them is worst: the first
holds the embedding and most micro batches in flight, the last the head and the logits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trainwright.planner.parameters import block_matrix_parameters, matrices, parameter_counts
from trainwright.planner.predict.layouts import Layouts, Numbers
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Adapter, Workload

FROZEN_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0, "nf4": 0.5 + 4 / 64, "int4": 0.5 + 3 / 128}
"""Bytes of one frozen element. nf4: four bits, and one fp32 scale for 64 of them (Dettmers et al., 2023, arXiv
2305.14314, section 3); int4: GPTQ's groups of 128 with a 16-bit scale and a packed zero point."""
NF4_DOUBLE_BYTES = 0.5 + (1 + 4 / 256) / 64
"""nf4 with double quantisation: 8-bit scales, 256 of them under one fp32 scale (section 3, "double quantization")."""
MOMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0 + 4 / 256}
"""int8: one fp32 scale for 256 elements (Dettmers et al., 2022, arXiv 2110.02861)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Parameters of a model by where a layout puts them; per layer where the name says so."""

    attention_per_layer: float
    ffn_per_dense_layer: float
    shared_per_moe_layer: float
    router_per_moe_layer: float
    experts_per_moe_layer: float
    norms_per_layer: float
    embedding: float
    """Tables on the first stage, positions and segments included."""
    head: float
    """What only the last stage has: nothing where the head is tied."""
    tied_copy: float
    """A tied head's matrix, of which the last of several stages keeps a copy."""
    largest_block_matrix: float
    """Elements of the largest matrix of a block."""


@lru_cache(maxsize=1024)
def sizes(model: ModelSpec) -> Sizes:
    """The parameters of ``model`` by place."""
    counts = parameter_counts(model)
    moe = max(1, model.moe_layers)
    dense = max(1, model.layers - model.moe_layers)
    return Sizes(
        attention_per_layer=counts["attention"] / model.layers,
        ffn_per_dense_layer=counts["feed_forward"] / dense,
        shared_per_moe_layer=counts.get("shared", 0) / moe,
        router_per_moe_layer=counts.get("router", 0) / moe,
        experts_per_moe_layer=counts.get("experts", 0) / moe,
        norms_per_layer=counts["norms"] / model.layers,
        embedding=counts["embedding"] + counts["positions"] + counts.get("segments", 0),
        head=counts["head"],
        tied_copy=model.vocabulary * model.width if model.tied and model.makes_logits else 0,
        largest_block_matrix=max(m.elements for m in matrices(model) if m.part not in ("head", "stem")),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stages:
    """What the first and the last stage hold: arrays [2, L]."""

    layers: Numbers
    dense_layers: Numbers
    moe_layers: Numbers
    dense: Numbers
    """Parameters of one rank but for its experts, tensor parallelism divided out."""
    experts: Numbers
    """Parameters of one rank's experts."""
    expert_tp: Numbers
    """Ranks that share one expert's matrices."""
    tables: Numbers
    """Of ``dense``, embedding and head."""
    layer: Numbers
    """One layer's (the larger kind's) parameters: what FSDP gathers at once."""
    has_head: Numbers
    passes: Numbers
    """Micro batches whose activations are alive at once."""

    @property
    def total(self) -> Numbers:
        """Parameters of one rank before data parallelism divides them."""
        return self.dense + self.experts


def stages_of(model: ModelSpec, layouts: Layouts) -> Stages:
    """The first and last stage of each layout."""
    size = sizes(model)
    single = np.where(layouts.pp == 1, 1.0, 0.0)
    each = np.ceil(model.layers / layouts.pp)
    layers = np.stack([each, each])
    dense_total = model.layers - model.moe_layers
    dense_layers = np.stack([np.minimum(each, dense_total), np.maximum(0.0, dense_total - (model.layers - each))])
    moe_layers = layers - dense_layers
    share = 1.0 / layouts.tp
    experts = size.experts_per_moe_layer / layouts.ep / expert_tp(model, layouts)
    mixture = size.shared_per_moe_layer * share + size.router_per_moe_layer
    attention = size.attention_per_layer * share + size.norms_per_layer
    feed_forward = size.ffn_per_dense_layer * share
    first, last = np.stack([np.ones_like(single), single]), np.stack([single, np.ones_like(single)])
    tables = (first * size.embedding + last * size.head + last * (1 - first) * size.tied_copy) * share
    return Stages(
        layers=layers,
        dense_layers=dense_layers,
        moe_layers=moe_layers,
        dense=layers * attention + dense_layers * feed_forward + moe_layers * mixture + tables,
        experts=moe_layers * experts,
        expert_tp=expert_tp(model, layouts),
        tables=tables,
        layer=attention + np.maximum((dense_layers > 0) * feed_forward, (moe_layers > 0) * (mixture + experts)),
        has_head=last * model.makes_logits,
        passes=passes_in_flight(layouts),
    )


def expert_tp(model: ModelSpec, layouts: Layouts) -> Numbers:
    """Ranks that share one expert's matrices: as many as tensor parallelism has, if data and tensor parallelism have
    enough ranks for that beside the division of experts. Experts narrower than the model are not divided."""
    if model.experts is None or model.experts.ffn_width < model.width:
        return np.ones_like(layouts.tp)
    return np.clip(np.floor(layouts.data_parallel * layouts.cp * layouts.tp / layouts.ep), 1.0, layouts.tp)


def passes_in_flight(layouts: Layouts) -> Numbers:
    """Micro batches alive at once on the first and last stage.

    1F1B: p - r on stage r (Narayanan et al., 2021, section 2.2). Interleaved with v chunks of 1 / v of the stage:
    2 (p - r - 1) + (v - 1) p + 1 chunks. Zero-bubble H1: what 1F1B's first stage has, on every stage (Qi et al., 2023,
    arXiv 2401.10241, section 2). GPipe: all.
    """
    p, v, m = layouts.pp, layouts.virtual_stages, layouts.micro_batches
    behind = np.stack([p - 1, np.zeros_like(p)])
    plain = np.minimum(behind + 1, m)
    chunks = np.minimum(2 * behind + (v - 1) * p + 1, m * v) / v
    found = np.where(layouts.has("schedule", "interleaved") & (v > 1), chunks, plain)
    found = np.where(layouts.has("schedule", "zero_bubble"), np.minimum(p, m), found)
    return np.where(layouts.has("schedule", "gpipe"), m, found)


@dataclass(frozen=True, kw_only=True, slots=True)
class StateBytes:
    """Bytes of one trained parameter: kept weight, gradient, the optimizer's state, and the update's temporary."""

    weight: float
    gradient: float
    optimizer: float
    update: float


def element_bytes(workload: Workload) -> float:
    """Bytes of an activation and of a weight as it enters a product; fp8 products keep both in bf16."""
    return 4.0 if workload.precision in ("fp32", "tf32") else 2.0


def state_bytes(model: ModelSpec, workload: Workload, memory: StackMemory) -> StateBytes:
    """Bytes for each parameter by ``Workload.states``.

    ``mixed`` keeps bf16's gradients in fp32, fp16's in fp16 (Megatron-LM's ``accumulate_allreduce_grads_in_fp32``
    follows bf16), and an fp32 master copy.
    """
    size = element_bytes(workload)
    full = size if workload.states == "pure" else 4.0
    moment = full if workload.moments is None else MOMENT_BYTES[workload.moments]
    master = 4.0 if workload.states == "mixed" and size < 4 else 0.0
    reduced = workload.states == "mixed" and (memory.reduced_gradients or workload.precision == "fp16")
    gradient = size if reduced else full
    if workload.states == "mixed" and memory.master_gradients:
        master, gradient = (master + 4.0, gradient) if reduced else (master, gradient + size)
    return StateBytes(
        weight=size if workload.states == "mixed" else full,
        gradient=gradient,
        optimizer=master + moment * moments_per_parameter(model, workload),
        update=full * memory.update_copies,
    )


def moments_per_parameter(model: ModelSpec, workload: Workload) -> float:
    """AdamW: two. SGD with momentum: one. Adafactor: a row and a column for each matrix, nothing here. Muon: one for the
    blocks' matrices, AdamW's two for the rest."""
    if workload.optimizer == "muon":
        counts = parameter_counts(model)
        return 2.0 - block_matrix_parameters(model) / sum(counts.values())
    return {"adamw": 2.0, "sgd": 1.0, "adafactor": 0.0}[workload.optimizer]


def adapter_parameters(model: ModelSpec, adapter: Adapter) -> float:
    """LoRA: rank (inputs + outputs) for each adapted matrix (Hu et al., 2021, section 4.1)."""
    if adapter.parameters is not None:
        return float(adapter.parameters)
    return float(
        sum(
            matrix.layers * matrix.copies * adapter.rank * (matrix.inputs + matrix.outputs)
            for matrix in matrices(model)
            if matrix.name in adapter.targets
        )
    )


def frozen_bytes(adapter: Adapter, memory: StackMemory) -> float:
    """Bytes of one frozen element of a block."""
    return NF4_DOUBLE_BYTES if adapter.frozen == "nf4" and memory.double_quantised else FROZEN_BYTES[adapter.frozen]


def sharded(stages: Stages, layouts: Layouts, *, from_stage: int) -> Numbers:
    """Parameters that one rank keeps where ranks share them from ZeRO stage ``from_stage`` on.

    Context parallelism shares too; experts are shared by the ranks that hold the same ones.
    """
    ranks = layouts.dp_shard * layouts.cp
    replicas = np.maximum(1.0, ranks * layouts.tp / (layouts.ep * stages.expert_tp))
    divides = layouts.zero_stage >= from_stage
    return stages.dense / np.where(divides, ranks, 1.0) + stages.experts / np.where(divides, replicas, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Kept:
    """Bytes [2, L] of what stays: ``gradients`` are those of one whole pass."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    update: Numbers
    """Temporaries of the update."""


def kept(model: ModelSpec, workload: Workload, layouts: Layouts, stages: Stages, memory: StackMemory) -> Kept:
    """Weights, gradients and optimizer's state of one rank.

    With offload ``optimizer`` the state lives in host memory, with ``all`` weights and gradients too, but for what is
    gathered.
    """
    if workload.adapter is not None:
        return _kept_with_adapter(model, workload.adapter, layouts, stages, memory, element_bytes(workload))
    each = state_bytes(model, workload, memory)
    states = sharded(stages, layouts, from_stage=1)
    on_device = np.where(layouts.has("offload", "none"), 1.0, 0.0)
    never = np.where(layouts.has("offload", "all"), 0.0, 1.0)
    return Kept(
        weights=each.weight * sharded(stages, layouts, from_stage=3) * never,
        gradients=each.gradient * sharded(stages, layouts, from_stage=2) * never,
        optimizer=each.optimizer * states * on_device,
        update=each.update * states * on_device,
    )


def _kept_with_adapter(
    model: ModelSpec, adapter: Adapter, layouts: Layouts, stages: Stages, memory: StackMemory, size: float
) -> Kept:
    """Frozen weights, tables in the compute dtype; the adapters' own with AdamW's two moments."""
    whole = sharded(stages, layouts, from_stage=3)
    tables = stages.tables * whole / (stages.dense + stages.experts)
    trained = adapter_parameters(model, adapter) / (layouts.tp * layouts.pp)
    trained = trained / np.where(layouts.zero_stage >= 3, layouts.dp_shard, 1.0) * np.ones_like(whole)
    on_device = np.where(layouts.has("offload", "none"), 1.0, 0.0)
    never = np.where(layouts.has("offload", "all"), 0.0, 1.0)
    frozen = (whole - tables) * frozen_bytes(adapter, memory) + tables * size
    return Kept(
        weights=(frozen + memory.adapter_bytes * trained) * never,
        gradients=memory.adapter_bytes * trained * never,
        optimizer=2 * memory.adapter_bytes * trained * on_device,
        update=memory.adapter_bytes * memory.update_copies * trained * on_device,
    )


def offloaded_bytes(
    model: ModelSpec, workload: Workload, layouts: Layouts, stages: Stages, memory: StackMemory
) -> Numbers:
    """Bytes [2, L] that offload moves from one device to host memory."""
    on_device = kept(model, workload, layouts, stages, memory)
    whole = kept(model, workload, replace(layouts, offload=np.zeros_like(layouts.offload)), stages, memory)
    return sum(
        (getattr(whole, name) - getattr(on_device, name) for name in ("weights", "gradients", "optimizer")),
        start=np.zeros_like(whole.weights),
    )
