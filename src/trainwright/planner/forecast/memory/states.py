"""Bytes that outlive a pass: weights, gradients, the optimizer's state, frozen weights; on the first and last stage.

Arrays have the shape [2, L]: the first and the last pipeline stage of each of L layouts. One of them is the worst: the
first holds the embedding and most micro batches in flight, the last the head and the logits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.adapters import BITSANDBYTES_FROZEN, adapted, adapter_parameters
from trainwright.planner.counts.between import base_bytes
from trainwright.planner.counts.layouts import Layouts, Numbers, Values
from trainwright.planner.counts.methods import method_bytes
from trainwright.planner.counts.parameters import (
    MOMENT_BYTES,
    block_matrices,
    matrices,
    moments_per_parameter,
)
from trainwright.planner.counts.pieces import STACK_ELEMENTS
from trainwright.planner.counts.process import Process
from trainwright.planner.counts.ranks import expert_tp, owners, stages_of_a_rank
from trainwright.planner.forecast.memory.per_parameter import (
    StateBytes,
    average_bytes,
    parameter_bytes,
    updates_by_tensor,
)
from trainwright.planner.forecast.memory.stages import Stages, stages_of
from trainwright.spec.device import DeviceKind
from trainwright.spec.model import FAMILIES, ModelSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import DEFAULT_KERNELS, Adapter, KernelChoice, Workload

PAGED_ELEMENTS = 1e5
"""Smaller tensors keep their moments on the device (bitsandbytes-foundation/bitsandbytes@95f9af30:
bitsandbytes/optim/optimizer.py, lines 383-393)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryCase:
    """One prediction's question: what every function of memory takes."""

    model: ModelSpec
    workload: Workload
    layouts: Layouts
    memory: StackMemory
    stages: Stages
    device_kind: DeviceKind = "cuda"
    kernels: KernelChoice = DEFAULT_KERNELS
    process: Process | None = None
    """What a process of our trainer holds beside tensors, where that was measured; None: what ``memory`` says."""

    @property
    def adapter(self) -> Adapter | None:
        """Returns the adapters on frozen weights."""
        return self.workload.adapter

    @property
    def element_bytes(self) -> float:
        """Returns the bytes of an activation."""
        return self.workload.element_bytes

    @property
    def recomputed(self) -> float:
        """Returns the share of the layers that are recomputed, where layers are."""
        return self.workload.recomputed_share(self.model.blocks)

    @property
    def frozen_bytes(self) -> float:
        """Returns the bytes of a block's weight where it is gathered: frozen ones as they are kept."""
        if self.adapter is None:
            return self.element_bytes
        return base_bytes(self.model, self.adapter, self.memory)

    @property
    def own(self) -> bool:
        """Returns whether this trainer trains all weights."""
        return self.memory.kernels == "own" and self.adapter is None

    @cached_property
    def sharded(self) -> Numbers:
        """Returns True [L] where weights are shared by more than one rank (ZeRO stage 3, FSDP).

        In a pipeline of this trainer's every stage of ZeRO keeps what stage 3 does.
        """
        layouts = self.layouts
        stage = np.where(self.own & (layouts.pp > 1), 1, 3)
        return np.where((layouts.zero_stage >= stage) & (layouts.sharing > 1), 1.0, 0.0)

    @property
    def gathers_once(self) -> NDArray[np.bool_]:
        """Returns True [L] where this trainer keeps what it gathered through a step: below ZeRO-3, and of replicas.

        Each rank has the weights that it updates, and beside them all as they are computed with (``fully_shard`` with
        ``reshard_after_forward=False``).
        """
        layouts = self.layouts
        several = layouts.dp_replicate * layouts.sharing > 1
        found: NDArray[np.bool_] = several & (self.sharded == 0) & (self.memory.kernels == "own")
        return found

    @property
    def shares_from(self) -> int:
        """Returns the stage of ZeRO from which ranks share weights: this trainer's from the first on (FSDP2)."""
        return 1 if self.memory.kernels == "own" else 3

    @property
    def widened(self) -> NDArray[np.bool_]:
        """Returns True [L] where activations are in fp32: bitsandbytes' products return the dtype of a norm in fp32."""
        quantised = self.adapter is not None and self.adapter.frozen in BITSANDBYTES_FROZEN
        wide: NDArray[np.bool_] = (self.sharded == 0) & (quantised and self.memory.quantised_fp32)
        return wide


def case_of(
    model: ModelSpec,
    workload: Workload,
    layouts: Layouts,
    memory: StackMemory,
    *,
    device_kind: DeviceKind = "cuda",
    process: Process | None = None,
    kernels: KernelChoice = DEFAULT_KERNELS,
    stages: Stages | None = None,
) -> MemoryCase:
    """Returns the question with its stages counted, or with these.

    This trainer's own kernels count for the families that it builds. A measured ``process`` takes the place of what the
    stack's file says of libraries, driver and allocator.
    """
    memory = memory_of(model, memory)
    if process is not None:
        memory = replace(memory, workspace_bytes=0.0, context_bytes=0.0, fragmentation=0.0, idle=0.0)
    return MemoryCase(
        model=model,
        workload=workload,
        layouts=layouts,
        memory=memory,
        stages=stages_of(model, layouts, forth_and_back=memory.kernels == "own") if stages is None else stages,
        device_kind=device_kind,
        kernels=kernels,
        process=process,
    )


def memory_of(model: ModelSpec, memory: StackMemory) -> StackMemory:
    """Returns the memory of a model by a stack whose own kernels it may not have: those of this trainer."""
    foreign = memory.kernels == "own" and model.family not in FAMILIES
    return replace(memory, kernels="eager") if foreign else memory


def state_bytes(case: MemoryCase) -> StateBytes:
    """Returns the bytes for each parameter of a case: see ``parameter_bytes``."""
    return parameter_bytes(case.model, case.workload, case.memory)


def shared_from(case: MemoryCase) -> dict[str, Numbers]:
    """Returns the stages of ZeRO from which ranks share each (Rajbhandari et al., 2020, section 3).

    In any stage this trainer keeps of weights what it updates (what it gathers is ``gathered_bytes``), and reduces
    gradients of one micro batch, and of a pipeline's, before all are there.
    """
    layouts = case.layouts
    stages = {"weights": 1, "gradients": np.where((layouts.micro_batches <= 1) | (layouts.pp > 1), 1, 2)}
    found = stages if case.own else {"weights": 3, "gradients": 2}
    return {name: np.asarray(stage) for name, stage in {**found, "optimizer": 1}.items()}


def shared(case: MemoryCase, *, from_stage: int | Numbers) -> Numbers:
    """Returns the parameters that one rank keeps where ranks share them from ZeRO stage ``from_stage`` on.

    Context parallelism shares too; experts are shared by the ranks that hold the same ones.
    """
    layouts, stages = case.layouts, case.stages
    # The two ranks of a bidirectional pipeline that have the same stages update half of them each; DualPipeV has none.
    twice = case.memory.kernels != "own" and np.all(np.equal(from_stage, 1))
    ranks = layouts.sharing * (stages_of_a_rank(layouts) if twice else 1.0)
    divides = layouts.zero_stage >= from_stage
    dense = stages.dense / np.where(divides, ranks, 1.0)
    if case.model.experts is None:
        return np.asarray(dense)
    replicas = np.maximum(1.0, ranks * layouts.tp / (layouts.ep * expert_tp(case.model, layouts)))
    return np.asarray(dense + stages.experts / np.where(divides, replicas, 1.0))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Kept:
    """Bytes [2, L] of what stays: ``gradients`` are those of one whole pass, ``update`` the update's temporaries."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    update: Numbers


def kept(case: MemoryCase) -> Kept:
    """Returns weights, gradients and optimizer's state of one rank.

    With offload the optimizer's state lives in host memory or on NVMe, and an average of the weights stays; with
    ``all`` and ``all-nvme`` weights and gradients too, but for what is gathered; with ``frozen`` only the adapters'
    weights and states stay. Paged moments are none of what stays: they take what room is left.
    """
    whole, layouts = _kept_anywhere(case), case.layouts
    frozen = layouts.has("offload", "frozen")
    stays = np.where(layouts.has("offload", "none") | frozen, 1.0, 0.0)
    never = np.where(layouts.offloads_all, 0.0, 1.0)
    optimizer = whole.optimizer * stays
    if case.workload.average_every:
        optimizer = optimizer + average_bytes(case.workload) * shared(case, from_stage=1) * (1.0 - stays)
    return Kept(
        weights=np.where(frozen, adapter_bytes(case), whole.weights * never),
        gradients=whole.gradients * never,
        optimizer=optimizer - paged_bytes(case),
        update=whole.update * stays,
    )


def moment_bytes(case: MemoryCase) -> Numbers:
    """Returns the bytes [2, L] of the optimizer's moments whose update one rank makes."""
    workload, asked = case.workload, case.workload.moments
    if case.adapter is not None:
        each = case.memory.adapter_bytes if asked is None else MOMENT_BYTES[asked]
        count = _adapter_moments(case.model, case.adapter, workload)
        return np.asarray(count * each / case.memory.adapter_bytes * adapter_bytes(case))
    full = case.element_bytes if workload.states == "pure" else 4.0
    each = full if asked is None else MOMENT_BYTES[asked]
    return np.asarray(each * moments_per_parameter(case.model, workload) * shared(case, from_stage=1))


def paged_bytes(case: MemoryCase) -> Numbers:
    """Returns the bytes [2, L] of moments in unified memory: those of large tensors, unless they are offloaded."""
    if not case.workload.paged_moments:
        return np.zeros_like(case.stages.total)
    if case.adapter is None:
        tensors = [(float(each.elements), each.layers * each.copies) for each in matrices(case.model)]
    else:
        tensors = _adapter_tensors(case.model, case.adapter)
    total = sum(size * count for size, count in tensors)
    large = sum(size * count for size, count in tensors if size >= PAGED_ELEMENTS)
    # Scales of 8-bit moments stay on the device (the same, ``Optimizer2State.init_state``).
    values = 1 / MOMENT_BYTES["int8"] if case.workload.moments == "int8" else 1.0
    here = case.layouts.has("offload", "none") | case.layouts.has("offload", "frozen")
    return np.where(here, large / total * values * moment_bytes(case), 0.0)


def _adapter_moments(model: ModelSpec, adapter: Adapter, workload: Workload) -> float:
    """Returns how many moments are kept of each parameter of the adapters; Adafactor's of their own two sides."""
    if workload.optimizer != "adafactor":
        return moments_per_parameter(model, workload)
    tensors = _adapter_tensors(model, adapter)
    kept = sum((adapter.rank + size / adapter.rank) * count for size, count in tensors)
    return kept / sum(size * count for size, count in tensors)


def _adapter_tensors(model: ModelSpec, adapter: Adapter) -> list[tuple[float, int]]:
    """Returns the elements of each adapter's two sides, and how many such there are."""
    sides = [(side, each) for each in adapted(model, adapter) for side in (each.inputs, each.outputs)]
    return [(float(adapter.rank * side), each.layers * each.copies) for side, each in sides]


def adapter_bytes(case: MemoryCase) -> Numbers:
    """Returns the bytes [2, L] of the adapters' weights of one rank; 0 where all weights are trained."""
    if case.adapter is None:
        return np.zeros_like(case.stages.total)
    return case.memory.adapter_bytes * rank_adapters(case, case.adapter) * np.ones_like(case.stages.total)


def _kept_anywhere(case: MemoryCase) -> Kept:
    if case.adapter is not None:
        return _kept_with_adapter(case)
    each, alive = state_bytes(case), gradients_alive(case)
    states, stages = shared(case, from_stage=1), shared_from(case)
    copied = each.update * states * np.minimum(alive, copied_share(case))
    return Kept(
        weights=each.weight * shared(case, from_stage=stages["weights"]),
        gradients=gradient_bytes(case, each.gradient) * alive,
        optimizer=each.optimizer * states,
        update=copied + stack_bytes(case) + denominator_bytes(case, states),
    )


def gradient_bytes(case: MemoryCase, each: float) -> Numbers:
    """Returns the bytes [2, L] of gradients of ``each`` bytes, as far as ranks share them.

    Where this trainer reduces them in bf16, whole ones are added up in that; what a rank updates with is fp32 again.
    """
    whole = shared(case, from_stage=shared_from(case)["gradients"])
    if not reduces_in_half(case):
        return each * whole
    layouts = case.layouts
    several = layouts.dp_replicate * layouts.sharing > 1
    return np.where(several, np.maximum(each / 2 * whole, each * shared(case, from_stage=1)), each * whole)


def reduces_in_half(case: MemoryCase) -> bool:
    """Returns whether data-parallel ranks of this trainer add up gradients in bf16."""
    return case.memory.kernels == "own" and case.kernels.reduce == "bf16"


def gradients_alive(case: MemoryCase) -> Numbers:
    """Returns the share [2, L] of gradients that is there at once: with updates in the backward pass one tensor's.

    Gradients that are added up over micro batches, or live in one buffer, are all there.
    """
    if not case.workload.update_in_backward or case.memory.flat_gradients:
        return np.ones_like(case.stages.total)
    return np.where(case.layouts.micro_batches > 1, 1.0, _tensor_share(case))


def copied_share(case: MemoryCase) -> Numbers:
    """Returns the share [2, L] of parameters that an update copies at once: one tensor's where it goes by tensors."""
    return _tensor_share(case) if updates_by_tensor(case.workload) else np.ones_like(case.stages.total)


def _tensor_share(case: MemoryCase) -> Numbers:
    """Returns the share [2, L] of a rank's parameters that the largest tensor has."""
    # An embedding is as large as the head, which is none of the matrices where both are one.
    tied = case.model.vocabulary * case.model.width * (case.model.kind != "vision")
    largest = max(tied, *(matrix.elements for matrix in matrices(case.model))) / case.layouts.tp
    return np.minimum(1.0, largest / case.stages.total)


def stack_bytes(case: MemoryCase) -> Values:
    """Returns the bytes [L] of a rank's stack of equal shapes that our Muon works on: fp32, and three it multiplies.

    Stacks are dealt over the ranks that share them. What is multiplied is in bf16; on a processor in fp32, for many
    have no bf16 products (``model.muon.product_dtype``).
    """
    if case.memory.kernels != "own" or case.workload.optimizer != "muon":
        return 0.0
    counts = Counter(rows * columns for rows, columns in block_matrices(case.model))
    layers = case.model.layers / (owners(case.layouts) * case.layouts.tp)
    largest = np.zeros(len(layers))
    for size, count in counts.items():
        largest = np.maximum(largest, np.maximum(size, np.minimum(STACK_ELEMENTS, layers * count * size)))
    return (4.0 + 3 * (4.0 if case.device_kind == "cpu" else 2.0)) * largest


def denominator_bytes(case: MemoryCase, states: Numbers) -> Numbers:
    """Returns the bytes [2, L] of AdamW's denominators where it is not fused (torch 2.13.0, torch/optim/adam.py).

    ``foreach`` makes the root of every second moment before it divides by the first of them; a loop makes root and
    quotient of one tensor, at most of the largest, which is a table.
    """
    if case.memory.kernels != "own" or case.kernels.update == "fused":
        return np.zeros_like(states)
    if case.kernels.update == "foreach":
        return 4.0 * states
    largest = max(case.model.vocabulary * case.model.width, *(matrix.elements for matrix in matrices(case.model)))
    return np.minimum(2 * 4.0 * largest, 2 * 4.0 * states)


def rank_adapters(case: MemoryCase, adapter: Adapter) -> Numbers:
    """Returns the adapters' parameters [L] that one rank has and updates."""
    layouts = case.layouts
    each = adapter_parameters(case.model, adapter) / (layouts.tp * layouts.pp)
    return np.asarray(each / np.where(layouts.zero_stage >= case.shares_from, layouts.sharing, 1.0))


def _kept_with_adapter(case: MemoryCase) -> Kept:
    """Returns frozen weights, tables in the compute dtype, and adapters with the optimizer's moments."""
    stages, whole = case.stages, shared(case, from_stage=case.shares_from)
    tables = stages.tables * whole / stages.total
    adapters = adapter_bytes(case)
    copied = case.memory.update_copies * adapters
    beside = method_bytes(case.model, case.adapter, case.layouts)
    if updates_by_tensor(case.workload) and case.adapter is not None:
        tensors = _adapter_tensors(case.model, case.adapter)
        copied = copied * max(size for size, _ in tensors) / sum(size * count for size, count in tensors)
    return Kept(
        weights=(whole - tables) * case.frozen_bytes + tables * case.element_bytes + adapters + beside,
        gradients=adapters,
        optimizer=moment_bytes(case),
        update=copied,
    )
