"""What the first and the last pipeline stage of each layout hold, and how many micro batches are in flight there."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.parameters import parameter_counts
from trainwright.planner.counts.ranks import expert_tp
from trainwright.spec.model import ModelSpec


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
    tables: Numbers
    """Of ``dense``, embedding and head."""
    layer: Numbers
    """One layer's (the larger kind's) parameters: what FSDP gathers at once."""
    has_embedding: Numbers
    has_head: Numbers
    passes: Numbers
    """Micro batches whose activations are alive at once."""

    @property
    def total(self) -> Numbers:
        """Returns the parameters of one rank before data parallelism divides them."""
        return self.dense + self.experts


@lru_cache(maxsize=1)
def stages_of(model: ModelSpec, layouts: Layouts) -> Stages:
    """Returns the first and last stage of each layout; layers are divided evenly, rounded up.

    In a bidirectional pipeline the first rank and the last have both. The latest is kept: states, offload and memory of
    the same layouts are counted one after the other.
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
    if both.any():
        layers, dense_layers, moe_layers, tables, last = (
            np.where(both, values.sum(axis=0), values) for values in (layers, dense_layers, moe_layers, tables, last)
        )
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
        passes=passes_in_flight(layouts),
    )


def passes_in_flight(layouts: Layouts) -> Numbers:
    """Returns the number of micro batches alive at once on the first and last stage.

    1F1B: p - r on stage r (Narayanan et al., 2021, section 2.2). Interleaved with v chunks of 1 / v of the stage:
    2 (p - r - 1) + (v - 1) p + 1 chunks. Zero-bubble H1: what 1F1B's first stage has, on every stage (Qi et al., 2023,
    arXiv 2401.10241, section 2). DualPipe: p + 1 on every rank, of its two stages together (arXiv 2412.19437, table
    2), so that half as many hold both. GPipe: all.
    """
    p, v, m = layouts.pp, layouts.virtual_stages, layouts.micro_batches
    behind = np.array([p - 1, np.zeros_like(p)])
    plain = np.minimum(behind + 1, m)
    chunks = np.minimum(2 * behind + (v - 1) * p + 1, m * v) / v
    passes = np.where(layouts.has("schedule", "interleaved") & (v > 1), chunks, plain)
    passes = np.where(layouts.has("schedule", "zero_bubble"), np.minimum(p, m), passes)
    both = layouts.has("schedule", "dualpipe")
    if both.any():
        passes = np.where(both, np.minimum(p + 1, m) / 2, passes)
    return np.where(layouts.has("schedule", "gpipe"), m, passes)
