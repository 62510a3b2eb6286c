"""The cheapest way to train in less memory, as the planner sees it."""

from __future__ import annotations

from dataclasses import replace

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.stacks import stack
from trainwright.model.kernels.refusals import of_recompute
from trainwright.planner.counts.layouts import RECOMPUTES, Layouts
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.plan import Plan
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import KernelChoice, Recompute
from trainwright.stages.train.faults.memory import Change
from trainwright.stages.train.layout import refusals_of

ENOUGH = 0.75
"""Activations and logits of a change, over those now: less than this, or it would soon be out of memory again."""


def cheapest_change(plan: Plan, kernels: KernelChoice) -> Change | None:
    """Returns the fastest smaller micro batch or further recomputation that needs clearly less; None where none is."""
    if not plan.model.is_divisible:  # batch norms have their whole batch in one pass
        return None
    most = plan.parallel.micro_batch_sequences
    now = _forecast(plan, kernels, most, plan.workload.recompute)
    if now is None:
        return None
    found = []
    # What divides the present one divides whatever that divides: each rank's part of the batch.
    for micro_batch in (each for each in range(most, 0, -1) if most % each == 0):
        for recompute in _recomputes(plan, kernels):
            there = _forecast(plan, kernels, micro_batch, recompute)
            if there is not None and there[1] <= ENOUGH * now[1]:
                found.append(Change(micro_batch=micro_batch, recompute=recompute, slowdown=there[0] / now[0]))
    return min(found, key=lambda change: change.slowdown, default=None)


def _recomputes(plan: Plan, kernels: KernelChoice) -> tuple[Recompute, ...]:
    """Returns the recomputation of a plan, and what recomputes more and is executed with the rest of it."""
    work = plan.workload
    if plan.parallel.pp > 1:
        return (work.recompute,)
    more = RECOMPUTES[RECOMPUTES.index(work.recompute) :]
    refused = refusals_of(plan.model, work)
    return tuple(each for each in more if not (refused(plan.parallel, each) or of_recompute(kernels, each)))


def _forecast(plan: Plan, kernels: KernelChoice, micro_batch: int, recompute: Recompute) -> tuple[float, float] | None:
    """Returns seconds of a step, and bytes of activations and logits, as the planner sees them."""
    run = RunSpec(
        model=plan.model, workload=plan.workload, cluster=plan.cluster, stack=stack("trainwright"), kernels=kernels
    )
    layouts = Layouts.of([replace(plan.parallel, micro_batch_sequences=micro_batch)], [recompute], plan.workload)
    try:
        seen = forecast(run, layouts, CATALOGUE)
    except RecipeError:  # the catalogue knows no rate of this device
        return None
    return float(seen.step_s[0]), float(seen.memory.activations[0] + seen.memory.logits[0])
