"""What the first and the last pipeline stage of each layout hold, and how many micro batches are in flight there."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.parallel.stages import place_of, stage_blocks, stage_owners
from trainwright.planner.counts.parallel.tensor import rank_parameters
from trainwright.planner.counts.parameters import parameter_counts
from trainwright.planner.counts.ranks import ends_count_as_blocks, expert_tp
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import ParallelPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class Stages:
    """What the first and the last stage hold, in DualPipe a rank with both ends and one between: arrays [2, L]."""

    layers: Numbers
    dense_layers: Numbers
    moe_layers: Numbers
    dense: Numbers
    """Parameters of one rank but for its experts, tensor parallelism divided out."""
    experts: Numbers
    """Parameters of one rank's experts."""
    tables: Numbers
    """Of ``dense``, embedding and head."""
    layer: Numbers
    """One layer's (the larger kind's) parameters: what FSDP gathers at once."""
    has_embedding: Numbers
    has_head: Numbers
    passes: Numbers
    """Micro batches whose activations are alive at once."""

    @cached_property
    def total(self) -> Numbers:
        """Returns the parameters of one rank before data parallelism divides them."""
        return self.dense + self.experts


def place_name(parallel: ParallelPlan, row: int) -> str:
    """Returns which rank of a pipeline a row of ``Stages`` is, in words."""
    if parallel.schedule == "dualpipe":
        return ("a rank with both ends", "a rank between the ends")[row]
    return ("the first stage", "the last stage")[row]


@lru_cache(maxsize=1)
def stages_of(model: ModelSpec, layouts: Layouts, *, forth_and_back: bool = False) -> Stages:
    """Returns the first and last stage of each layout; layers are divided evenly, rounded up.

    In a bidirectional pipeline the first place is the ranks that have both ends of the network, the last one those of
    its middle; ``forth_and_back``, as DualPipeV runs, no layer lies on two of them. The latest is kept: states, offload
    and memory of the same layouts are counted one after the other.
    """
    counts, blocks = parameter_counts(model), model.blocks
    mixtures, dense_total = max(1, model.moe_layers), blocks - model.moe_layers
    single = np.where(layouts.pp == 1, 1.0, 0.0)
    each = np.ceil(blocks / layouts.pp)
    layers = np.array([each, each])
    dense_layers = np.array([np.minimum(each, dense_total), np.maximum(0.0, dense_total - (blocks - each))])
    moe_layers = layers - dense_layers
    # One layer's parameters on a rank, by kind of layer.
    share = 1.0 / layouts.tp
    experts = counts.get("experts", 0) / mixtures / layouts.ep / expert_tp(model, layouts)
    mixture = counts.get("shared", 0) / mixtures * share + counts.get("router", 0) / mixtures
    attention = counts["attention"] / blocks * share + counts["norms"] / blocks
    feed_forward = counts["feed_forward"] / max(1, dense_total) * share
    ones = np.ones_like(single)
    first, last = np.array([ones, single]), np.array([single, ones])
    embedding = counts["embedding"] + counts["positions"] + counts.get("segments", 0)
    head = counts["head"] + counts.get("further", 0)
    # The last of several stages keeps a copy of a tied head's matrix.
    tied_copy = model.vocabulary * model.width if model.tied and model.makes_logits else 0
    tables = (first * embedding + last * head + last * (1 - first) * tied_copy) * share
    both = layouts.has("schedule", "dualpipe")
    if both.any() and forth_and_back:
        ends = np.stack([np.ones_like(single), np.zeros_like(single)])
        first, last = np.where(both, ends, first), np.where(both, ends, last)
        tables = np.where(both, ends * (embedding + head) * share, tables)
    elif both.any():
        layers, dense_layers, tables, last = (
            np.where(both, there, values)
            for there, values in zip(
                _of_two_ways(model, layouts, tables), (layers, dense_layers, tables, last), strict=True
            )
        )
        first, moe_layers = np.where(both, last, first), layers - dense_layers
    return Stages(
        layers=layers,
        dense_layers=dense_layers,
        moe_layers=moe_layers,
        dense=layers * attention + dense_layers * feed_forward + moe_layers * mixture + tables,
        experts=moe_layers * experts,
        tables=tables,
        layer=attention + np.maximum((dense_layers > 0) * feed_forward, (moe_layers > 0) * (mixture + experts)),
        has_embedding=first,
        has_head=last * model.makes_logits,
        passes=passes_in_flight(layouts, forth_and_back=forth_and_back),
    )


def _of_two_ways(model: ModelSpec, layouts: Layouts, tables: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Returns layers, dense ones, tables and ends [2, L] of ranks with both ends, and of ranks between, in DualPipe.

    Each has two stages; of those between the second and the last but one. Two ranks have no others between.
    """
    each, dense_total = np.ceil(model.blocks / layouts.pp), model.blocks - model.moe_layers
    end, between = each - ends_count_as_blocks(model, layouts.pp), layouts.pp > 2
    opening = np.minimum(end, dense_total)
    dense = opening + np.maximum(0.0, dense_total - (model.blocks - end))
    early, late = dense_total - end, dense_total - (model.blocks - end - each)
    second = np.clip(early, 0.0, each) + np.clip(late, 0.0, each)
    ends = np.stack([np.ones_like(each), np.where(between, 0.0, 1.0)])
    layers, dense_layers = np.where(ends > 0, 2 * end, 2 * each), np.where(ends > 0, dense, second)
    return layers, dense_layers, ends * tables.sum(axis=0), ends


def stages_at(model: ModelSpec, parallel: ParallelPlan, place: int, *, micro_batches: int) -> Stages:
    """Returns what this project's trainer has at one place of a pipeline, as both rows of arrays [2, 1].

    It cuts where the slowest stage has least (``stage_blocks``), so that places differ by more than their ends.

    Raises:
        ValueError: the model has fewer blocks than there are stages.
    """
    at = place_of(model, parallel, place)
    own = rank_parameters(model, parallel.tp, at)
    norms = model.width * (2 if model.norm == "layernorm" and model.norm_bias else 1)

    def both(value: float) -> Numbers:
        return np.full((2, 1), float(value))

    return Stages(
        layers=both(at.blocks),
        dense_layers=both(at.blocks),
        moe_layers=both(0),
        dense=both(own.total),
        experts=both(0),
        tables=both(own.root - at.ends * norms),
        layer=both(own.blocks / at.blocks),
        has_embedding=both(at.begins),
        has_head=both(at.ends and model.makes_logits),
        passes=both(blocks_in_flight(model, parallel, place, micro_batches=micro_batches) / at.blocks),
    )


def blocks_in_flight(model: ModelSpec, parallel: ParallelPlan, place: int, *, micro_batches: int) -> int:
    """Returns how many blocks a place keeps the activations of, each as often as micro batches are alive in it.

    As ``passes_in_flight``, but for each place, and by stages of unlike size. Interleaved: the forward passes before
    the first backward pass and one more, in rounds of as many micro batches as there are places. DualPipeV: 2 p - r
    micro batches forth and r + 1 back at place r, counted from torch's schedule.
    """
    owners, p = stage_owners(parallel), parallel.pp
    parts = stage_blocks(model, len(owners))
    mine = [len(parts[stage]) for stage, owner in enumerate(owners) if owner == place]
    if parallel.schedule == "dualpipe":
        forth, back = mine
        return min(2 * p - place, micro_batches) * forth + min(place + 1, micro_batches) * back
    if parallel.schedule == "interleaved":
        ahead = min(2 * (p - place - 1) + (len(mine) - 1) * p + 1, micro_batches * len(mine))
        return sum(mine[number // p % len(mine)] for number in range(ahead))
    alive = {"gpipe": micro_batches, "zero_bubble": p}.get(parallel.schedule, p - place)
    return min(alive, micro_batches) * mine[0]


def passes_in_flight(layouts: Layouts, *, forth_and_back: bool = False) -> Numbers:
    """Returns the number of micro batches alive at once on the first and last stage.

    1F1B: p - r on stage r (Narayanan et al., 2021, section 2.2). Interleaved with v chunks of 1 / v of the stage:
    2 (p - r - 1) + (v - 1) p + 1 chunks. Zero-bubble H1: what 1F1B's first stage has, on every stage (Qi et al., 2023,
    arXiv 2401.10241, section 2). DualPipe: p + 1 on every rank, of its two stages together (arXiv 2412.19437, table
    2), so that half as many hold both; DualPipeV:
    as ``blocks_in_flight``. GPipe: all.
    """
    p, v, m = layouts.pp, layouts.virtual_stages, layouts.micro_batches
    behind = np.array([p - 1, np.zeros_like(p)])
    plain = np.minimum(behind + 1, m)
    chunks = np.minimum(2 * behind + (v - 1) * p + 1, m * v) / v
    passes = np.where(layouts.has("schedule", "interleaved") & (v > 1), chunks, plain)
    passes = np.where(layouts.has("schedule", "zero_bubble"), np.minimum(p, m), passes)
    both = layouts.has("schedule", "dualpipe")
    if both.any():
        chunks = np.minimum(p + 1 + behind, m) + np.minimum(p - behind, m)
        passes = np.where(both, (chunks if forth_and_back else np.minimum(p + 1, m)) / 2, passes)
    return np.where(layouts.has("schedule", "gpipe"), m, passes)
