"""Joins a prediction with what was measured, row by row. Pure: a plan and a training summary in, rows out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from trainwright.core.frozen import dataclass
from trainwright.planner.evidence.ledger import FORMAT
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Estimate, Interval, Plan
from trainwright.spec.summary import RankUse, TrainSummary

PEAK = "peak memory"
SMALL = 0.01
"""A part below this share of its whole, both predicted and measured, gets no ratio: it cannot matter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRow:
    """One quantity, predicted and measured.

    ``ratio`` is measured / predicted, None where nothing was predicted or the part is too small to matter. ``within``
    says whether the measured value lies in the predicted range, None where no range was given. ``ranks`` are the least,
    the median and the most that any rank measured, where there are several; ``measured`` is the leading rank's.
    """

    group: str
    quantity: str
    unit: str
    predicted: float
    measured: float
    ratio: float | None
    within: bool | None = None
    ranks: tuple[float, float, float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """All rows, and the two ratios that a plan is judged by."""

    rows: tuple[AuditRow, ...]
    seconds_ratio: float
    memory_ratio: float


def audit(plan: Plan, summary: TrainSummary) -> Audit:
    """Returns an estimate beside the measurements of a finished training run.

    Of a run that stopped early it is the estimate of the steps that it made.
    """
    guess, run, memory = _of_share(plan.estimate, summary.share_made), summary.phases, summary.memory
    total_s, total_bytes = run.total_s, memory.total_bytes
    unit, size = plan.model.batch_unit, plan.model.batch_unit_tokens
    within = guess.seconds.low <= total_s <= guess.seconds.high
    rows = [
        replace(_row("run", "training time", "s", guess.seconds.mid, total_s), within=within),
        _row("run", PEAK, "bytes", guess.memory.total_bytes, total_bytes),
        _row("run", f"{unit} per second", f"{unit}/s", guess.tokens_per_s / size, summary.tokens_per_s / size),
    ]
    if guess.mfu is not None and summary.mfu is not None:
        rows.append(_row("run", "MFU", "", guess.mfu, summary.mfu))
    rows += _parts("step", "s", guess.phases.as_dict(), summary.step_phases.as_dict())
    rows += _parts("whole run", "s", guess.run_phases.as_dict(), run.as_dict())
    rows += _parts("memory", "bytes", guess.memory.as_dict(), memory.as_dict())
    rows = [replace(row, ranks=_over_ranks(row, summary.ranks)) for row in rows]
    memory_ratio = total_bytes / guess.memory.total_bytes
    return Audit(rows=tuple(rows), seconds_ratio=total_s / guess.seconds.mid, memory_ratio=memory_ratio)


def _of_share(guess: Estimate, share: float) -> Estimate:
    """Returns the estimate of a run that makes this share of its steps: code is compiled once all the same."""
    if share == 1:
        return guess
    phases = replace(guess.run_phases.scaled(share), compile=guess.run_phases.compile)
    rest = phases.total_s / guess.run_phases.total_s
    seconds = Interval(low=guess.seconds.low * rest, mid=guess.seconds.mid * rest, high=guess.seconds.high * rest)
    return replace(guess, run_phases=phases, seconds=seconds)


def ledger_line(
    plan: Plan,
    comparison: Audit,
    *,
    model: ModelSpec,
    steps: int,
    run: str,
    finished_unix_s: float,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Returns the line that plans learn from: machine, shape, workload, and predicted and measured by name.

    ``model`` and ``steps`` are what was trained: a plan that came before its dataset estimated the vocabulary and the
    length. ``versions`` are those of trainwright and torch; a package that is not named there is kept as unknown.
    """
    workload = replace(plan.workload, steps=steps)
    return {
        "format": FORMAT,
        "run": run,
        "finished_unix_s": finished_unix_s,
        "trainwright": versions.get("trainwright"),
        "torch": versions.get("torch"),
        "device": plan.cluster.device.name,
        "devices": plan.cluster.devices,
        "cores": plan.cluster.node.cpu_cores,
        "host_memory_bytes": plan.cluster.node.host_memory_bytes,
        "parallel": {name: getattr(plan.parallel, name) for name in plan.parallel.__dataclass_fields__},
        "model": asdict(model),
        "unmeasured": dict(plan.unmeasured),
        "workload": asdict(workload),
        "rows": {f"{row.group}/{row.quantity}": [row.predicted, row.measured] for row in comparison.rows},
    }


def _parts(group: str, unit: str, predicted: Mapping[str, float], measured: Mapping[str, float]) -> Iterator[AuditRow]:
    whole_predicted, whole_measured = sum(predicted.values()), sum(measured.values())
    for name, guess in predicted.items():
        if guess == (seen := measured[name]) == 0:
            continue
        small = guess < SMALL * whole_predicted and seen < SMALL * whole_measured
        row = _row(group, name, unit, guess, seen)
        yield replace(row, ratio=None) if small else row


def _over_ranks(row: AuditRow, ranks: Sequence[RankUse]) -> tuple[float, float, float] | None:
    """Returns least, median and most of what all ranks measured of a row; None of what is said of the run alone."""
    if row.group == "step":
        values = [rank.step_phases.as_dict()[row.quantity] for rank in ranks]
    elif row.group == "memory":
        values = [rank.memory.as_dict()[row.quantity] for rank in ranks]
    elif row.quantity == PEAK:
        values = [rank.memory.total_bytes for rank in ranks]
    else:
        values = []
    return (min(values), statistics.median(values), max(values)) if values else None


def _row(group: str, quantity: str, unit: str, predicted: float, measured: float) -> AuditRow:
    ratio = measured / predicted if predicted else None
    return AuditRow(group=group, quantity=quantity, unit=unit, predicted=predicted, measured=measured, ratio=ratio)
