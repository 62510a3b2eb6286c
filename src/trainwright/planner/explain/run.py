"""Formulas of a whole run: its time, dollars, energy and checkpoints; see ``planner.explain.registry``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from trainwright.core.errors import RecipeError
from trainwright.planner.cost.goodput import HOUR_S
from trainwright.planner.cost.run_cost import RunCost, checkpoint_bytes
from trainwright.planner.counts.adapters import count_trained
from trainwright.planner.explain.formula import Explanation, Term, first
from trainwright.planner.plan.cluster import Planned

_PARTS = {
    "steps_s": "steps alone",
    "evaluation_s": "validation",
    "checkpoints_s": "writing checkpoints",
    "lost_s": "work that failures undo",
    "recovery_s": "coming back from failures",
    "start_s": "start-up",
    "overhead_s": "overhead of long runs (as published ones had)",
}


def beside_steps(run: RunCost) -> tuple[tuple[str, float], ...]:
    """Returns the parts of a run beside its steps: words and seconds, the longest first."""
    parts = [(_PARTS[name], first(getattr(run.parts, name))) for name in _PARTS if name != "steps_s"]
    return tuple(sorted((part for part in parts if part[1] > 0), key=lambda part: -part[1]))


def _seconds(planned: Planned) -> Explanation:
    parts = {name: first(getattr(planned.run.parts, name)) for name in _PARTS}
    terms = tuple(Term(name.removesuffix("_s"), value, "s", _PARTS[name]) for name, value in parts.items() if value)
    about, formula = (
        f"{first(planned.run.steps):,.0f} steps and what interrupts them",
        " + ".join(term.symbol for term in terms),
    )
    source = "Daly, 2006, equation 20, for failures"
    return Explanation("run.seconds", about, formula, terms, first(planned.run.seconds), "s", source=source)


def _usd(planned: Planned) -> Explanation:
    price = planned.scenario.price
    if price is None or planned.run.usd is None:
        device = planned.plan.cluster.device.name
        raise RecipeError("no price is known to explain", where=device, fix="give one: `price` 2.50")
    terms = (
        Term("s", first(planned.run.billed_s), "s", "the run (run.seconds), as it is billed"),
        Term("h", HOUR_S, "s", "an hour"),
        Term("d", float(planned.plan.cluster.devices), "", "devices"),
        Term("p", price.usd_per_device_hour, "$", "for one device and hour"),
    )
    value = first(planned.run.usd)
    return Explanation("run.usd", "the run's price", "s / h × d × p", terms, value, "$", source=price.source)


def _checkpoint(planned: Planned) -> Explanation:
    plan, run = planned.plan, planned.run
    count = count_trained(plan.model, plan.workload)
    size = checkpoint_bytes(replace(planned.scenario.run, workload=plan.workload))
    terms = (
        Term("P", float(count), "parameters", "that are trained"),
        Term("b", size / count, "bytes", "of a weight, its master copy and the moments"),
    )
    about, details = "one checkpoint of the whole model", (Term("", first(run.checkpoint_s), "s", "to write it"),)
    return Explanation("checkpoint.bytes", about, "P × b", terms, size, "bytes", details=details)


RUN: Mapping[str, Callable[[Planned], Explanation]] = {
    "run.seconds": _seconds,
    "run.usd": _usd,
    "checkpoint.bytes": _checkpoint,
}
