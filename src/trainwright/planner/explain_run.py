"""Formulas of a whole run: its time, dollars, energy and checkpoints; see ``planner.explain``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.planner.adapters import adapter_parameters
from trainwright.planner.cluster_plan import Planned
from trainwright.planner.explanation import Explanation, Term
from trainwright.planner.goodput import HOUR_S, Goodput
from trainwright.planner.parameters import total_parameters
from trainwright.planner.run import RunCost, checkpoint_bytes

_PARTS = {
    "steps_s": "steps alone", "stragglers_s": "waiting for slow devices", "ramp_up_s": "small batches at the start",
    "evaluation_s": "validation", "checkpoints_s": "writing checkpoints", "lost_s": "work that failures undo",
    "recovery_s": "coming back from failures", "start_s": "start-up",
    "overhead_s": "overhead of long runs (as published ones had)",
}  # fmt: skip


_PHASES = frozenset({"steps_s", "evaluation_s", "checkpoints_s"})
"""Parts that have phases of their own; the others are in ``other``."""


def beside_steps(run: RunCost) -> tuple[tuple[str, float], ...]:
    """What ``other`` of a run holds beside its steps' own: each part's words and seconds, the longest first."""
    found = [(_PARTS[name], _first(getattr(run.parts, name))) for name in _PARTS if name not in _PHASES]
    return tuple(sorted((part for part in found if part[1] > 0), key=lambda part: -part[1]))


def _first(value: np.ndarray) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def _seconds(planned: Planned) -> Explanation:
    parts: Goodput = planned.run.parts
    assert {field.name for field in fields(Goodput)} >= _PARTS.keys()
    terms = tuple(
        Term(symbol=name.removesuffix("_s"), value=_first(getattr(parts, name)), unit="s", meaning=meaning)
        for name, meaning in _PARTS.items()
        if _first(getattr(parts, name))
    )
    return Explanation(
        name="run.seconds", about=f"{planned.run.steps:,} steps and what interrupts them",
        formula=" + ".join(term.symbol for term in terms), terms=terms, value=_first(planned.run.seconds), unit="s",
        source="Daly, 2006, equation 20, for failures",
    )  # fmt: skip


def _usd(planned: Planned) -> Explanation:
    price = planned.scenario.price
    if price is None or planned.run.usd is None:
        raise RecipeError(
            "no price is known to explain", where=planned.plan.cluster.device.name, fix="give one: --price 2.50"
        )
    terms = (
        Term(symbol="s", value=_first(planned.run.seconds), unit="s", meaning="the run (run.seconds)"),
        Term(symbol="h", value=HOUR_S, unit="s", meaning="an hour"),
        Term(symbol="d", value=float(planned.plan.cluster.devices), unit="", meaning="devices"),
        Term(symbol="p", value=price.usd_per_device_hour, unit="$", meaning="for one device and hour"),
    )
    return Explanation(
        name="run.usd", about="the run's price", formula="s / h × d × p", terms=terms, value=_first(planned.run.usd),
        unit="$", source=price.source,
    )  # fmt: skip


def _checkpoint(planned: Planned) -> Explanation:
    plan, run = planned.plan, planned.run
    adapter = plan.workload.adapter
    trained = None if adapter is None else adapter_parameters(planned.scenario.transformer, adapter)
    count = total_parameters(plan.model) if trained is None else trained
    size = checkpoint_bytes(plan.model, plan.workload, planned.scenario.stack)
    terms = (
        Term(symbol="P", value=float(count), unit="parameters", meaning="that are trained"),
        Term(symbol="b", value=size / count, unit="bytes", meaning="of a weight, its master copy and the moments"),
    )
    writes = Term(symbol="", value=_first(run.checkpoint_s), unit="s", meaning="to write it")
    return Explanation(
        name="checkpoint.bytes", about="one checkpoint of the whole model", formula="P × b", terms=terms, value=size,
        unit="bytes", details=(writes,),
    )  # fmt: skip


RUN: Mapping[str, Callable[[Planned], Explanation]] = {
    "run.seconds": _seconds, "run.usd": _usd, "checkpoint.bytes": _checkpoint,
}  # fmt: skip
