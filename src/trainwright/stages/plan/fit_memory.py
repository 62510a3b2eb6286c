"""``train.exec.fit_memory``: the fastest way to carry a training out within so many bytes a process.

What is chosen changes no bit of the result but by rounding: micro batch and recomputation. Moments in fewer bits, or
another optimizer, would train something else; they are named where nothing fits, and never taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from trainwright.core.units import format_bytes
from trainwright.planner.forecast.memory.table import usable_bytes, visible_bytes
from trainwright.planner.plan.machine import Here
from trainwright.spec.plan import Assumption, Plan
from trainwright.spec.sections.layout import LayoutSection
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.workload import ParallelPlan, Recompute, Workload

WAYS: tuple[tuple[Recompute, float], ...] = (
    ("none", 0.0),
    *(("selective", budget) for budget in (0.75, 0.5, 0.25, 0.0)),
    *(("full", budget) for budget in (0.75, 0.5, 0.25, 0.0)),
)
"""Kinds of recomputation, and what share of the blocks is left out of it."""
Executes = Callable[[Workload, ParallelPlan], bool]
"""Says whether the trainer carries a workload out so."""


def within(here: Here, limit_bytes: int | None) -> Here:
    """Returns the machine with devices of which a process uses no more than so many bytes."""
    device = here.cluster.device
    usable = usable_bytes(device)
    if limit_bytes is None or usable <= limit_bytes:
        return here
    visible = visible_bytes(device) * limit_bytes / usable
    node = replace(here.cluster.node, device=replace(device, visible_bytes=int(visible)))
    return replace(here, cluster=replace(here.cluster, node=node))


def ways(section: TrainSection, workload: Workload, executes: Executes) -> Iterator[Workload]:
    """Yields the workload with each kind of recomputation that is executed, from the recipe's own on."""
    layout = section.exec.layout
    parallel = layout.parallel() if isinstance(layout, LayoutSection) else ParallelPlan()
    asked = WAYS.index((workload.recompute, 0.0))
    for place, (recompute, budget) in enumerate(WAYS):
        own = (recompute, budget) == (workload.recompute, 0.0)
        selective = section.activation_offload and recompute == "selective"
        way = replace(workload, recompute=recompute, recompute_budget=budget)
        if place >= asked and (own or (executes(way, parallel) and not selective)):
            yield way


def fitted(
    section: TrainSection, workload: Workload, plan_of: Callable[[Workload], Plan], executes: Executes
) -> tuple[Workload, Plan]:
    """Returns the fastest way that fits with its plan, else the one that needs least.

    Args:
        section: of the recipe, with ``exec.fit_memory``.
        workload: as the recipe asks for it.
        plan_of: lays out a workload, with the best micro batch.
        executes: what the trainer does.
    """
    limit = section.exec.fit_memory
    assert limit is not None
    tried = [(work, plan_of(work)) for work in ways(section, workload, executes)]
    fitting = [each for each in tried if each[1].estimate.fits]
    if not fitting:
        return min(tried, key=lambda each: each[1].estimate.memory.total_bytes)
    work, plan = min(fitting, key=lambda each: each[1].estimate.seconds.mid)
    text = f"fastest of {len(fitting)} of {len(tried)} ways of recomputation that fit {format_bytes(limit)} a process"
    chosen = f"micro batch {plan.parallel.micro_batch_sequences}, recompute {work.recompute}"
    if work.recompute_budget:
        chosen += f" but in {work.recompute_budget:.0%} of the blocks"
    note = Assumption("within the memory", chosen, "", "recipe", text, key="fit_memory")
    estimate = replace(plan.estimate, assumptions=(*plan.estimate.assumptions, note))
    return work, replace(plan, estimate=estimate)
