"""Sections about the prediction: was it right, and what would the run cost elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwright.core.units import format_bytes, format_seconds
from trainwright.planner.evidence.audit import Audit
from trainwright.render.pictures.bars import PHASE_TONES
from trainwright.render.results.audit import AuditLine, groups, verdict
from trainwright.spec.plan import Assumption, Plan, Rental
from trainwright.stages.report import say, scale
from trainwright.stages.report.blocks import Block, Cell, Figure, Missing, PageSection, Table, Tone
from trainwright.stages.report.charts import Bar, Bars, Segment
from trainwright.stages.report.run_record import RunRecord
from trainwright.stages.report.say import title

PROCESS_PART, TEMPORARIES = "process before training", "temporaries and allocator"
"""The two parts of workspace that can be told apart."""

WORKSPACE = (
    "The process before training is Python, torch and the libraries that it loads. Temporaries and allocator is what "
    "the peak holds beyond all other classes: temporary tensors of a pass or an update, gradients that exist twice for "
    "a moment, and freed memory that malloc keeps; these cannot be measured apart."
)

LEAST_SHOWN = 0.003
"""Share of a bar that is about a pixel wide."""


def prediction(run: RunRecord) -> PageSection:
    """Plan against measurement."""
    if run.plan is None:
        missing = Missing(text="Nothing was planned yet.", command="trainwright plan RECIPE")
        return PageSection(key="prediction", title="Predicted and measured", lead="", blocks=(missing,))
    lead = "The plan was made before training from this machine's probes; hollow bars are its predictions."
    if run.training is None:
        lead += " Nothing was trained yet, so there is nothing to hold it against."
    blocks: list[Block] = [*_phases(run.plan, run.training), _memory(run.plan, run.training), *_audit(run.audit)]
    if run.audit is None:
        blocks.append(Missing(text="The prediction was not audited yet.", command="trainwright audit RECIPE"))
    blocks.append(_assumptions(run.plan))
    return PageSection(key="prediction", title="Predicted and measured", lead=lead, blocks=blocks)


def _phases(plan: Plan, training: Mapping[str, Any] | None) -> Iterator[Figure]:
    pairs = [("One training step", plan.estimate.phases.as_dict(), "step_phases")]
    pairs.append(("The whole run", plan.estimate.run_phases.as_dict(), "phases"))
    for name, predicted, key in pairs:
        measured = (training or {}).get(key)
        shown = [("predicted", predicted, True)] + ([("measured", measured, False)] if measured else [])
        rows = [(label, [_stack(parts, ghost=ghost)]) for label, parts, ghost in shown]
        # A phase too thin to be seen needs no entry in the legend; the audit has its number.
        present = [p for p in PHASE_TONES if any(s.get(p, 0.0) > LEAST_SHOWN * sum(s.values()) for _, s, _ in shown)]
        chart = Bars(
            title=f"{name}, by phase",
            x_title="time",
            groups=rows,
            format=format_seconds,
            axis=scale.seconds_unit(max(sum(parts.values()) for _, parts, _ in shown)),
            legend=[(title(phase), PHASE_TONES[phase], False) for phase in present],
            name_segments=True,
        )
        yield Figure(views=[("", chart)])


def _stack(parts: Mapping[str, float], *, ghost: bool) -> Bar:
    segments = [
        Segment(name=title(phase), value=float(parts[phase]), tone=tone, ghost=ghost)
        for phase, tone in PHASE_TONES.items()
        if parts.get(phase, 0.0) > 0
    ]
    bar = Bar(segments=segments, text="")
    return Bar(segments=segments, text=format_seconds(bar.total))


def _memory(plan: Plan, training: Mapping[str, Any] | None) -> Figure:
    predicted = _classes(plan.estimate.memory.as_dict(), _predicted_process_bytes(plan))
    measured = _classes((training or {}).get("memory") or {}, (training or {}).get("process_bytes") or 0)
    if measured and PROCESS_PART not in measured:
        # Nothing measured the process by itself (a GPU, an earlier version): then workspace stays whole on both sides.
        predicted = plan.estimate.memory.as_dict()
    names = [name for name in predicted if predicted[name] > 0 or measured.get(name, 0) > 0]
    rows = []
    for name in [*names, "total"]:
        values = [(sum(side.values()) if name == "total" else side.get(name, 0.0)) for side in (predicted, measured)]
        bars = [_memory_bar("predicted", values[0], ghost=True)]
        if measured:
            bars.append(_memory_bar("measured", values[1], ghost=False))
        rows.append((title(name), bars))
    chart = Bars(
        title="Memory at the peak, by class",
        x_title="memory",
        groups=rows,
        format=format_bytes,
        axis=scale.bytes_unit(max([*predicted.values(), *measured.values()], default=1.0)),
        legend=[("predicted", 0, True), ("measured", 0, False)] if measured else [],
    )
    note = f"Available: {format_bytes(plan.estimate.memory_available_bytes)}. {WORKSPACE}"
    return Figure(views=[("", chart)], note=note, wide=True)


def _classes(memory: Mapping[str, float], process_bytes: float) -> dict[str, float]:
    """Returns bytes by class, workspace split into the process before training and the rest where that is known."""
    parts = dict(memory)
    if parts and process_bytes > 0:
        workspace = parts.pop("workspace", 0.0)
        parts[PROCESS_PART] = min(process_bytes, workspace)
        parts[TEMPORARIES] = workspace - parts[PROCESS_PART]
    return parts


def _predicted_process_bytes(plan: Plan) -> float:
    """Returns the size that the plan assumes of the process before training; 0 where it assumes none."""
    sizes = (item.value for item in plan.estimate.assumptions if item.key == "process")
    return next((size for size in sizes if isinstance(size, float)), 0.0)


def _memory_bar(label: str, value: float, *, ghost: bool) -> Bar:
    segment = Segment(name=label, value=value, tone=0, ghost=ghost)
    return Bar(segments=[segment], text=format_bytes(value), label=label)


def _audit(audit: Audit | None) -> Iterator[Table]:
    if audit is None:
        return
    rows: list[Sequence[Cell | str]] = []
    headings: dict[int, str] = {}
    for group in groups(audit):
        headings[len(rows)] = group.title
        rows += [_audit_row(line) for line in group.lines]
    yield Table(
        title="Audit",
        columns=["quantity", "predicted", "measured", "difference"],
        rows=rows,
        right=(1, 2, 3),
        headings=headings,
        note=f"{verdict(audit)} Parts too small for a ratio to mean anything share the last line of their group.",
        wide=True,
    )


def _audit_row(line: AuditLine) -> list[Cell | str]:
    tones: dict[bool | None, Tone] = {None: "dim", True: "good", False: "warn"}
    return [line.quantity, line.predicted, line.measured, Cell(text=line.difference, tone=tones[line.close])]


def _assumptions(plan: Plan) -> Table:
    rows = [_assumption_row(item) for item in plan.estimate.assumptions]
    columns = ["assumption", "value", "origin", "source"]
    return Table(title="What the plan rests on", columns=columns, rows=rows, right=(1,), wide=True)


def _assumption_row(item: Assumption) -> list[Cell | str]:
    value = item.value if isinstance(item.value, str) else _with_unit(item.value, item.unit)
    return [title(item.name), value, item.origin, Cell(text=item.source, tone="dim")]


def _with_unit(value: float, unit: str) -> str:
    by_unit = {
        "FLOP/s": "flops_per_s",
        "flops/s": "flops_per_s",
        "bytes": "_bytes",
        "s": "_s",
    }
    if unit in by_unit:
        return say.number(by_unit[unit], value)
    return f"{say.count(value)} {unit}".strip()


def elsewhere(run: RunRecord) -> PageSection:
    """Returns the same run on rented devices."""
    rentals: Sequence[Rental] = () if run.plan is None else run.plan.rentals
    if not rentals:
        missing = Missing(
            text="No rented device was priced: name some in plan.rent_on.", command="trainwright plan RECIPE"
        )
        return PageSection(key="elsewhere", title="Elsewhere", lead="", blocks=(missing,))
    lead = "The same run on one rented device, estimated from data sheets and published prices."
    rows = [_rental_row(rental) for rental in sorted(rentals, key=_by_price)]
    columns = ["device", "fits", "time", "range", "price per hour", "cost", "offer", "price list"]
    table = Table(title="Rented devices", columns=columns, rows=rows, right=(2, 3, 4, 5), wide=True)
    return PageSection(key="elsewhere", title="Elsewhere", lead=lead, blocks=(table,))


def _by_price(rental: Rental) -> tuple[bool, float, str]:
    return rental.usd is None or not rental.fits, rental.usd or 0.0, rental.device


def _rental_row(rental: Rental) -> list[Cell | str]:
    spread = (
        f"{format_seconds(rental.seconds_low)} to {format_seconds(rental.seconds_high)}" if rental.seconds_high else ""
    )
    hour = rental.usd_per_device_hour
    offer = " ".join(part for part in (rental.provider, rental.price_kind.replace("_", " ")) if part)
    return [
        rental.device,
        Cell(text="yes" if rental.fits else "no", tone="good" if rental.fits else "bad"),
        format_seconds(rental.seconds) if rental.fits else Cell(text=rental.reason, tone="dim"),
        Cell(text=spread, tone="dim"),
        say.UNKNOWN if hour is None else f"${hour:.2f}",
        say.value("usd", rental.usd) if rental.fits else "",
        Cell(text=offer or (rental.reason if rental.fits else ""), tone="dim"),
        Cell(text=f"{rental.source}@{rental.as_of}" if rental.source else "", tone="dim"),
    ]
