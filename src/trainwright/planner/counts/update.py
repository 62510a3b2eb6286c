"""What an update moves and computes: AdamW operation by operation where it is not one kernel, an average, Muon."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trainwright.planner.counts.adapters import adapter_parameters
from trainwright.planner.counts.flops import muon_flops
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.parameters import (
    AVERAGE_BYTES,
    BLOCK_PARTS,
    MOMENT_BYTES,
    block_matrix_parameters,
    matrices,
    moments_per_parameter,
    total_parameters,
)
from trainwright.planner.counts.ranks import owned_parameters, owners, slowest_layers
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import DEFAULT_KERNELS, KernelChoice, OptimizerName, Workload

UPDATED_BY_ADAMW: tuple[OptimizerName, ...] = ("adamw", "muon")
"""Optimizers that update all tensors by AdamW, or those that are no matrices of blocks."""
OPERATIONS = 8
"""Of AdamW on one tensor (torch 2.13.0, torch/optim/adam.py): decay, the first moment, the second in two, its root, its
correction, epsilon, the step."""
UNFUSED_BYTES = 8.0 + 12.0 + (8.0 + 12.0) + (8.0 + 8.0 + 8.0) + 16.0
"""What they read and write for each parameter in fp32, in this order."""
FUSED_BYTES = 28.0
"""Weight, gradient and two moments read; weight and moments written."""


def unfused_bytes(
    model: ModelSpec, workload: Workload, layouts: Layouts, kernels: KernelChoice, written_bytes: float = FUSED_BYTES
) -> Numbers:
    """Returns the bytes [L] that an update of one rank moves beyond the fused kernel's; AdamW's alone.

    ``written_bytes`` is what that of the software moves for a parameter in fp32 where no other kernel is chosen.
    """
    moved = written_bytes if kernels.update == "fused" else UNFUSED_BYTES
    if moved <= FUSED_BYTES or workload.optimizer not in UPDATED_BY_ADAMW or workload.adapter is not None:
        return np.zeros(len(layouts))
    share = 1.0
    if workload.optimizer == "muon":
        share -= block_matrix_parameters(model) / total_parameters(model)
    share *= 0.5 if workload.states == "pure" else 1.0
    return np.asarray((moved - FUSED_BYTES) * share * owned_parameters(model, layouts))


def averaging_bytes(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the bytes [L] that the weights' average moves in a mean update: both are read, it is written."""
    if not workload.average_every:
        return np.zeros(len(layouts))
    return np.asarray(3.0 * AVERAGE_BYTES / workload.average_every * owned_parameters(model, layouts))


def update_bytes(
    model: ModelSpec,
    workload: Workload,
    layouts: Layouts,
    chosen: KernelChoice = DEFAULT_KERNELS,
    written_bytes: float = FUSED_BYTES,
) -> Numbers:
    """Returns the memory traffic of one update: gradient, weight and moments read, weight and moments written.

    AdamW with two moments in fp32: 28 bytes a parameter, and 2 more where a reduced copy is written; 14 where all is
    kept reduced. Adafactor keeps no moment, but reads the gradient three times: for the means of its rows and columns,
    for the update's size, by which it is clipped, and for the update (Shazeer and Stern, 2018, arXiv 1804.04235,
    algorithm 4). Muon writes and reads what it makes orthogonal, in 16 bits.
    """
    full = 2.0 if workload.states == "pure" else 4.0
    moment = full if workload.moments is None else MOMENT_BYTES[workload.moments]
    gradients = 3 if workload.optimizer == "adafactor" else 1
    each = (gradients + 2) * full + 2 * moment * moments_per_parameter(model, workload)
    each += 2.0 * (workload.states == "mixed")
    if workload.adapter is not None:
        return np.full(len(layouts), each * adapter_parameters(model, workload.adapter))
    if workload.optimizer == "muon":
        each += 4.0 * block_matrix_parameters(model) / total_parameters(model)
    more = unfused_bytes(model, workload, layouts, chosen, written_bytes)
    more = more + averaging_bytes(model, workload, layouts)
    return np.asarray(each * owned_parameters(model, layouts) + more)


def orthogonal_flops(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the operations of Muon's iterations on one rank (``flops.muon_flops``; Jordan et al., 2024)."""
    if workload.optimizer != "muon" or workload.adapter is not None:
        return np.zeros(len(layouts))
    return dealt(model, layouts, muon_flops)


def dealt(model: ModelSpec, layouts: Layouts, cost: Callable[[int, int], float]) -> Numbers:
    """Returns one rank's part [L] of what Muon does to every one of the blocks' matrices, each of which ``cost`` it.

    Ranks that share the state, tensor-parallel ones too, are dealt whole matrices (Liu et al., 2025, arXiv 2502.16982,
    section 2.3), so that none has less to do than the dearest asks for.
    """
    stage = slowest_layers(model, layouts) / model.blocks
    ranks = owners(layouts) * layouts.tp
    total, dearest = np.zeros(len(layouts)), 0.0
    for matrix in matrices(model):
        if matrix.part in BLOCK_PARTS:
            each = cost(matrix.outputs, matrix.inputs)
            split = layouts.ep if matrix.part == "experts" else 1.0
            shared_by = np.maximum(1.0, ranks / split)
            total = total + each * matrix.layers * matrix.copies * stage / split / shared_by
            dearest = max(dearest, each)
    return np.maximum(total, dearest)
