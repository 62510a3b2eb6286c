"""Peak memory of a training run by class, and the moment at which it is reached.

Classes are those of ``MemoryUse``, as the trainer measures them: on a CPU the total is the resident memory of the
process, on CUDA what torch's allocator holds plus the context. A run's peak is the largest of four moments:

* loss: everything saved for backward, and the loss's own tensors; with accumulation also earlier gradients, and on a
  CPU, whose heap keeps what it held, those of the step before;
* backward: saved activations shrink while gradients grow;
* update: gradients, optimizer state and the update's temporaries;
* the sum of classes as the trainer reports them, which it never shows below.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwright.hardware.probes import GrowthProbe
from trainwright.planner.activations import MicroBatch, block_bytes, loss_bytes, saved_bytes
from trainwright.planner.parameters import block_matrices, block_matrix_parameters, total_parameters
from trainwright.spec.measures import MemoryUse
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import Workload

MASTER_BYTES = 4
"""Parameters, gradients and optimizer states are fp32 whatever the arithmetic."""

STACK_ELEMENTS = 1 << 24
"""Muon stacks matrices of one shape up to so many elements; a test holds this to the optimizer's own limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """What a training process holds besides tensors.

    ``baseline_bytes``: with libraries loaded and one product made (CPU), or the device's context (CUDA).
    ``transient``: temporaries of a pass, as a multiple of what one block saves: they come and go with each block.
    ``waste``: resident bytes that no tensor uses, as a share of all that is saved: holes that the allocator cannot give
    back between tensors that live on. Zero on CUDA, where they are ``reserved_unused``.
    """

    baseline_bytes: float
    transient: float
    waste: float


def process_from(probes: Sequence[GrowthProbe], baseline_bytes: float, *, near_bytes: float) -> Process:
    """What the doctor's growth probes say, taken from the width whose blocks save nearest to ``near_bytes``.

    A pair of depths L gives two equations, growth - gradients - saved(L) = waste saved(L) + transient block.

    Raises:
        ValueError: no width was probed at two depths.
    """
    pairs: list[tuple[float, Process]] = []
    for thin in probes:
        for deep in probes:
            if replace(thin.model, layers=deep.model.layers) != deep.model or deep.model.layers <= thin.model.layers:
                continue
            batch = MicroBatch(
                sequences=thin.sequences, sequence_tokens=thin.sequence_tokens, dtype=thin.dtype, device_kind="cpu"
            )
            block = block_bytes(thin.model, batch)
            saved = [saved_bytes(probe.model, batch) for probe in (thin, deep)]
            beyond = [
                probe.grown_bytes - MASTER_BYTES * total_parameters(probe.model) - kept
                for probe, kept in zip((thin, deep), saved, strict=True)
            ]
            waste = max(0.0, (beyond[1] - beyond[0]) / (saved[1] - saved[0]))
            transient = max(0.0, (beyond[0] - waste * saved[0]) / block)
            distance = abs(math.log(block / near_bytes))
            pairs.append((distance, Process(baseline_bytes=baseline_bytes, transient=transient, waste=waste)))
    if not pairs:
        raise ValueError("no width was probed at two depths")
    return min(pairs, key=lambda pair: pair[0])[1]


def optimizer_bytes(model: ModelSpec, workload: Workload) -> int:
    """AdamW: two moments (8 bytes a parameter). Muon: one momentum for the blocks' matrices, AdamW for the rest."""
    total = total_parameters(model)
    muon = block_matrix_parameters(model) if workload.optimizer == "muon" else 0
    return MASTER_BYTES * (2 * (total - muon) + muon)


def predict_memory(
    model: ModelSpec, workload: Workload, batch: MicroBatch, process: Process, *, accumulation: int
) -> MemoryUse:
    """Bytes by class at the peak of the run on one device."""
    recompute = workload.recompute == "full"
    weights = MASTER_BYTES * total_parameters(model)
    optimizer = optimizer_bytes(model, workload)
    saved = saved_bytes(model, batch, recompute=recompute)
    logits = loss_bytes(model, batch)
    transient = (process.transient + recompute) * block_bytes(model, batch) + process.waste * saved
    # On a CPU the heap keeps what it once held, and the optimizer's state settles in the holes of the first gradients.
    earlier = weights if accumulation > 1 or batch.device_kind == "cpu" else 0
    moments = (
        earlier + saved + transient + logits,
        weights + _largest_gradient(model) + transient,
        weights + _update_bytes(model, workload),
    )
    peak = process.baseline_bytes + weights + optimizer + max(moments)
    explained = 2 * weights + optimizer + saved + logits
    return MemoryUse(
        weights=weights, gradients=weights, optimizer=optimizer, activations=saved, logits=logits,
        workspace=max(peak - explained, 0.0),
    )  # fmt: skip


def _largest_gradient(model: ModelSpec) -> int:
    """A new gradient stands beside the accumulated one until it is added: the embedding's is the largest."""
    matrices = (rows * columns for rows, columns in block_matrices(model))
    return MASTER_BYTES * max(model.vocabulary * model.width, *matrices)


def _update_bytes(model: ModelSpec, workload: Workload) -> int:
    """Muon orthogonalises a stack of equal shapes at a time: fp32 directions, and three stacks of them in bf16."""
    if workload.optimizer == "adamw":
        return 0
    sizes = Counter(rows * columns for rows, columns in block_matrices(model))
    stacks = (max(size, min(STACK_ELEMENTS, model.layers * count * size)) for size, count in sizes.items())
    return (MASTER_BYTES + 3 * 2) * max(stacks)
