"""What a rank has of the model: layers, stages, parameters, and how full its experts are; arrays [L] over layouts."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.parameters import matrices, total_parameters
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Balance
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

VIOLATION: dict[Balance, float] = {"loss": 0.62, "bias": 0.04}
"""The fullest expert's load over the mean, less one (Wang et al., 2024, arXiv 2408.15664, table 2, the mean of its two
models of 1 and 3 B parameters; recall)."""
VIOLATION_EXPERTS = 64
"""Experts of those models."""


def slowest_layers(model: ModelSpec, layouts: Layouts) -> Numbers:
    """Returns the number of blocks [L] on the pipeline rank that has most of them.

    Where ``ends_count_as_blocks`` that is a share of the blocks and two.
    """
    chunks = (layouts.pp * layouts.virtual_stages).astype(np.intp)
    counts = np.arange(1, chunks.max(initial=1) + 1)  # few: the remainder of each layout would take longer
    layers = np.ceil((model.blocks + 2.0 * ends_count_as_blocks(model, counts)) / counts)
    return np.asarray(layers[chunks - 1] * layouts.virtual_stages)


def ends_count_as_blocks(model: ModelSpec, stages: NDArray[Any]) -> NDArray[np.bool_]:
    """Returns whether embedding and head stand for a block each, so that blocks divide among so many stages.

    As in Llama 3 405B (arXiv 2407.21783, section 3.3.2): 126 blocks on 16 ranks.
    """
    return np.asarray((model.blocks % stages > 0) & ((model.blocks + 2) % stages == 0))


def lighter_ends(model: ModelSpec, layouts: Layouts) -> tuple[Numbers, Numbers]:
    """Returns the shares of blocks that the last stage, and both ends on average, have fewer than the slowest.

    Where ``ends_count_as_blocks``, the ends have one less; else the first chunks have one more where blocks do not
    divide.
    """
    ranks = layouts.pp * layouts.virtual_stages
    slowest = slowest_layers(model, layouts)
    over = model.blocks % ranks
    ends = ends_count_as_blocks(model, ranks)
    last = np.where(over > 0, layouts.virtual_stages - np.floor(over / layouts.pp), 0.0)
    last = np.where(ends, 1.0, last)
    first = np.where(ends, 1.0, np.where(over > 0, layouts.virtual_stages - np.ceil(over / layouts.pp), 0.0))
    piped = layouts.pp > 1
    return np.where(piped, last / slowest, 0.0), np.where(piped, (first + last) / 2 / slowest, 0.0)


def rank_parameters(model: ModelSpec, layouts: Layouts) -> tuple[Numbers, Numbers]:
    """Returns the parameters of one rank before data-parallel sharding: those that all tokens pass, and experts'.

    A rank of a bidirectional pipeline has two stages.
    """
    experts = sum(matrix.parameters for matrix in matrices(model) if matrix.part == "experts")
    shared = total_parameters(model) - experts
    stages = layouts.pp / stages_of_a_rank(layouts)
    return shared / (layouts.tp * stages), experts / (expert_tp(model, layouts) * stages * layouts.ep)


def expert_tp(model: ModelSpec, layouts: Layouts) -> Numbers:
    """Returns the number of ranks [L] that share one expert's matrices.

    As many as tensor parallelism has, if data and tensor parallelism have enough ranks for that beside the division of
    experts. Experts narrower than the model are not divided.
    """
    if model.experts is None or model.experts.ffn_width < model.width:
        return np.ones_like(layouts.tp)
    ranks = layouts.data_parallel * layouts.cp * layouts.tp
    return np.clip(np.floor(ranks / layouts.ep), 1.0, layouts.tp)


def stages_of_a_rank(layouts: Layouts) -> Numbers | float:
    """Returns the number of stages whose parameters a rank keeps: in DualPipe two (arXiv 2412.19437, table 2)."""
    both = layouts.has("schedule", "dualpipe")
    return np.where(both, 2.0, 1.0) if both.any() else 1.0


def owners(layouts: Layouts) -> Numbers:
    """Returns the number of ranks [L] that share the optimizer's state; two pipelines' ranks have the same stages."""
    return np.where(layouts.zero_stage >= 1, layouts.sharing * stages_of_a_rank(layouts), 1.0)


def owned_parameters(model: ModelSpec, layouts: Layouts) -> Numbers:
    """Returns the parameters [L] that one rank updates."""
    shared, experts = rank_parameters(model, layouts)
    ranks = owners(layouts)
    split = layouts.ep * expert_tp(model, layouts) / layouts.tp
    return np.asarray(shared / ranks + experts / np.maximum(1.0, ranks / split))


def fullest(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the fullest expert-parallel rank's load over the mean: what all others wait for.

    ``Workload.expert_imbalance`` where it is given. Else the expected largest of ``ep`` normal loads, whose relative
    variance is that of experts that are not equally popular (``VIOLATION``), averaged over a rank's own, and that of
    drawing so many tokens. Without expert parallelism nobody waits.
    """
    experts = model.experts
    alone = np.ones(len(layouts))
    if experts is None:
        return alone
    if workload.expert_imbalance is not None:
        return np.where(layouts.ep > 1, workload.expert_imbalance, alone)
    popular = VIOLATION[experts.balance] / expected_largest(VIOLATION_EXPERTS)
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp / layouts.tp
    variance = popular**2 * layouts.ep / experts.count + (1 - 1 / layouts.ep) / (tokens * experts.active)
    distinct, back = np.unique(layouts.ep, return_inverse=True)
    largest = np.array([expected_largest(int(each)) for each in distinct])[back.reshape(-1)]
    return np.asarray(1.0 + largest * np.sqrt(variance))


def expected_largest(count: int) -> float:
    """Returns the expected largest of ``count`` standard normal numbers (Blom, 1958): within 0.02."""
    return 0.0 if count == 1 else NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def processors_left(run: RunSpec, layouts: Layouts) -> Numbers:
    """Returns the share [L] of a device's processors that sending to experts leaves to what runs beside it."""
    taken = min(0.9, run.stack.dispatch.processors / (run.cluster.device.sm_count or np.inf))
    sends = layouts.has("schedule", "dualpipe") & (layouts.ep > 1)
    return np.where(sends, 1.0 - taken, 1.0)
