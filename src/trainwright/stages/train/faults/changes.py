"""The cheapest way to train in less memory, as the planner sees it."""

from __future__ import annotations

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.search.layouts import compare
from trainwright.spec.plan import Plan
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Recompute
from trainwright.stages.train.faults.memory import Change

ENOUGH = 0.75
"""Activations and logits of a change, over those now: less than this, or it would soon be out of memory again."""
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")


def cheapest_change(plan: Plan) -> Change | None:
    """Returns the fastest smaller micro batch or further recomputation that needs clearly less; None where none is."""
    now = _forecast(plan, plan.parallel.micro_batch_sequences, plan.workload.recompute)
    if now is None:
        return None
    found = []
    micro_batch = plan.parallel.micro_batch_sequences
    recomputes = RECOMPUTES[RECOMPUTES.index(plan.workload.recompute) :]
    while micro_batch >= 1:
        for recompute in recomputes if plan.parallel.pp == 1 else (plan.workload.recompute,):
            there = _forecast(plan, micro_batch, recompute)
            if there is not None and there[1] <= ENOUGH * now[1]:
                found.append(Change(micro_batch=micro_batch, recompute=recompute, slowdown=there[0] / now[0]))
        micro_batch //= 2
    return min(found, key=lambda change: change.slowdown, default=None)


def _forecast(plan: Plan, micro_batch: int, recompute: Recompute) -> tuple[float, float] | None:
    """Returns seconds of a step, and bytes of activations and logits, as the planner sees them."""
    run = RunSpec(model=plan.model, workload=plan.workload, cluster=plan.cluster, stack=stack("trainwright"))
    parallel = plan.parallel
    layout = FixedLayout(
        dp_replicate=parallel.dp_replicate,
        dp_shard=parallel.dp_shard,
        pp=parallel.pp,
        tp=parallel.tp,
        cp=parallel.cp,
        micro_batch=micro_batch,
        recompute=recompute,
        compile=parallel.compile,
    )
    try:
        compared = compare(run, [parallel.ranks], layout=layout)
    except RecipeError:  # the catalogue knows no rate of this device
        return None
    if not len(compared.layouts):
        return None
    best = compared.forecast(compared.order()[:1])
    return float(best.step_s[0]), float(best.memory.activations[0] + best.memory.logits[0])
