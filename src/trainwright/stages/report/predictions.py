"""Sections about the prediction: was it right, and what would the run cost elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwright.core.units import format_bytes, format_seconds
from trainwright.spec.plan import Assumption, Plan, Rental
from trainwright.stages.report import say, scale
from trainwright.stages.report.blocks import Block, Cell, Figure, Missing, Section, Table, Tone
from trainwright.stages.report.charts import Bar, Bars, Segment
from trainwright.stages.report.run_record import RunRecord
from trainwright.stages.report.say import title

PHASE_TONES = {
    "forward": 0, "backward": 1, "update": 2, "communicate": 3, "data_wait": 4, "preprocess": 5,
    "host_to_device": 6, "checkpoint": 8, "evaluate": 9, "other": 7,
}  # fmt: skip


LEAST_SHOWN = 0.003
"""Share of a bar that is about a pixel wide."""


def prediction(run: RunRecord) -> Section:
    """Plan against measurement."""
    if run.plan is None:
        missing = Missing(text="Nothing was planned yet.", command="trainwright plan RECIPE")
        return Section(key="prediction", title="Predicted and measured", lead="", blocks=(missing,))
    lead = "The plan was made before training from this machine's probes; hollow bars are its predictions."
    if run.training is None:
        lead += " Nothing was trained yet, so there is nothing to hold it against."
    blocks: list[Block] = [*_phases(run.plan, run.training), _memory(run.plan, run.training), *_audit(run.audit)]
    if run.audit is None:
        blocks.append(Missing(text="The prediction was not audited yet.", command="trainwright audit RECIPE"))
    blocks.append(_assumptions(run.plan))
    return Section(key="prediction", title="Predicted and measured", lead=lead, blocks=blocks)


def _phases(plan: Plan, training: Mapping[str, Any] | None) -> Iterator[Figure]:
    pairs = [("One training step", plan.estimate.phases.as_dict(), "step_phases")]
    pairs.append(("The whole run", plan.estimate.run_phases.as_dict(), "phases"))
    for name, predicted, key in pairs:
        measured = (training or {}).get(key)
        shown = [("predicted", predicted, True)] + ([("measured", measured, False)] if measured else [])
        groups = [(label, [_stack(parts, ghost=ghost)]) for label, parts, ghost in shown]
        # A phase too thin to be seen needs no entry in the legend; the audit has its number.
        present = [p for p in PHASE_TONES if any(s.get(p, 0.0) > LEAST_SHOWN * sum(s.values()) for _, s, _ in shown)]
        chart = Bars(
            title=f"{name}, by phase",
            x_title="time",
            groups=groups,
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
    predicted = plan.estimate.memory.as_dict()
    measured = (training or {}).get("memory") or {}
    classes = [name for name in predicted if predicted[name] > 0 or measured.get(name, 0) > 0]
    unit = scale.bytes_unit(max([*predicted.values(), *measured.values()], default=1.0))
    groups = []
    for name in [*classes, "total"]:
        values = [(sum(side.values()) if name == "total" else side.get(name, 0.0)) for side in (predicted, measured)]
        bars = [_memory_bar("predicted", values[0], ghost=True)]
        if measured:
            bars.append(_memory_bar("measured", values[1], ghost=False))
        groups.append((title(name), bars))
    legend = [("predicted", 0, True), ("measured", 0, False)] if measured else []
    chart = Bars(
        title="Memory at the peak, by class",
        x_title="memory",
        groups=groups,
        format=format_bytes,
        axis=unit,
        legend=legend,
    )
    note = f"Available: {format_bytes(plan.estimate.memory_available_bytes)}."
    return Figure(views=[("", chart)], note=note, wide=True)


def _memory_bar(label: str, value: float, *, ghost: bool) -> Bar:
    segment = Segment(name=label, value=value, tone=0, ghost=ghost)
    return Bar(segments=[segment], text=format_bytes(value), label=label)


def _audit(audit: Mapping[str, Any] | None) -> Iterator[Table]:
    if audit is None:
        return
    columns = ["of", "quantity", "predicted", "measured", "measured / predicted", "verdict"]
    note = "No ratio stands where a part is too small to matter; a verdict only where the plan gave a range."
    rows = [_audit_row(row) for row in audit["rows"]]
    yield Table(title="Audit", columns=columns, rows=rows, right=(2, 3, 4), note=note, wide=True)


def _audit_row(row: Mapping[str, Any]) -> list[Cell | str]:
    name, within = str(row["quantity"]), row["within"]
    key = {"s": "_s", "bytes": "_bytes", "tokens/s": "tokens_per_s"}.get(row["unit"], name.lower())
    tone: Tone = "dim" if within is None else "good" if within else "bad"
    words = {None: "", True: "within the range", False: "outside the range"}
    return [
        Cell(text=str(row["group"]), tone="dim"),
        title(name),
        say.value(key, row["predicted"]),
        say.value(key, row["measured"]),
        "" if row["ratio"] is None else say.ratio(row["ratio"]),
        Cell(text=words[within], tone=tone),
    ]


def _assumptions(plan: Plan) -> Table:
    rows = [_assumption_row(item) for item in plan.estimate.assumptions]
    columns = ["assumption", "value", "origin", "source"]
    return Table(title="What the plan rests on", columns=columns, rows=rows, right=(1,), wide=True)


def _assumption_row(item: Assumption) -> list[Cell | str]:
    value = item.value if isinstance(item.value, str) else _with_unit(item.value, item.unit)
    return [title(item.name), value, item.origin, Cell(text=item.source, tone="dim")]


def _with_unit(value: float, unit: str) -> str:
    by_unit = {
        "bytes/s": "bytes_per_s",
        "FLOP/s": "flops_per_s",
        "flops/s": "flops_per_s",
        "bytes": "_bytes",
        "s": "_s",
    }
    if unit in by_unit:
        return say.number(by_unit[unit], value)
    return f"{say.count(value)} {unit}".strip()


def elsewhere(run: RunRecord) -> Section:
    """The same run on rented devices."""
    rentals: Sequence[Rental] = () if run.plan is None else run.plan.rentals
    if not rentals:
        missing = Missing(
            text="No rented device was priced: name some in plan.rent_on.", command="trainwright plan RECIPE"
        )
        return Section(key="elsewhere", title="Elsewhere", lead="", blocks=(missing,))
    lead = "The same run on one rented device, estimated from data sheets and published prices."
    rows = [_rental_row(rental) for rental in sorted(rentals, key=_by_price)]
    columns = ["device", "fits", "time", "range", "price per hour", "cost", "offer", "price list"]
    table = Table(title="Rented devices", columns=columns, rows=rows, right=(2, 3, 4, 5), wide=True)
    return Section(key="elsewhere", title="Elsewhere", lead=lead, blocks=(table,))


def _by_price(rental: Rental) -> tuple[bool, float, str]:
    return rental.usd is None or not rental.fits, rental.usd or 0.0, rental.device


def _rental_row(rental: Rental) -> list[Cell | str]:
    spread = (
        f"{format_seconds(rental.seconds_low)} to {format_seconds(rental.seconds_high)}" if rental.seconds_high else ""
    )
    hour = rental.usd_per_device_hour
    return [
        rental.device,
        Cell(text="yes" if rental.fits else "no", tone="good" if rental.fits else "bad"),
        format_seconds(rental.seconds) if rental.fits else Cell(text=rental.reason, tone="dim"),
        Cell(text=spread, tone="dim"),
        say.UNKNOWN if hour is None else f"${hour:.2f}",
        say.value("usd", rental.usd) if rental.fits else "",
        Cell(
            text=" ".join(part for part in (rental.provider, rental.price_kind.replace("_", " ")) if part), tone="dim"
        ),
        Cell(text=f"{rental.source}@{rental.as_of}" if rental.source else "", tone="dim"),
    ]
