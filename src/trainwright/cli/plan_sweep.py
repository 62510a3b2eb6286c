"""``plan --sweep``: one thing varied, as a table and a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.output import Output
from trainwright.cli.pictures import drawable
from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from trainwright.planner.question import Question
    from trainwright.planner.sweep import Point, Sweep


def run(args: argparse.Namespace, question: Question) -> int:
    """Plan each value and print one line for it."""
    from trainwright.planner.sweep import parse_sweep, sweep

    output = Output.of(args)
    if args.draw is not None:
        drawable(Path(args.draw))
    axis, values = parse_sweep(args.sweep)
    found = sweep(question, axis, values)
    output.result({"sweep": found}, lambda: show(found, output))
    if args.draw is not None:
        path = Path(args.draw)
        draw(found, path)
        output.note(f"drawn: {path}")
    return 0


def show(found: Sweep, output: Output) -> None:
    """A table for each series, and where more devices stop paying."""
    titles = {"strong": "strong scaling: the batch stays", "weak": "weak scaling: the batch grows with the nodes"}
    for place, series in enumerate(dict.fromkeys(point.series for point in found.points)):
        if place:
            output.line()
        points = [point for point in found.points if point.series == series]
        if series is not None:
            output.heading(titles[series])
        _table(found.axis, points, output, scaling=series is not None)
    if found.axis != "nodes":
        return
    output.line()
    critical = found.critical_batch_tokens
    if critical is not None and any((point.batch_tokens or 0) > critical for point in found.points):
        output.line(f"batches above {format_count(critical)}, the critical one, take more tokens to the same loss")
    if found.stops_at is None:
        output.line("every further device brings at least half of what a device of the smallest cluster does")
    else:
        output.line(
            f"more than {found.stops_at:,} devices do not pay: each further one brings less than half of what a device "
            "of the smallest cluster does"
        )


def _table(axis: str, points: list[Point], output: Output, *, scaling: bool) -> None:
    columns = [axis.replace("_", " "), *(("devices", "batch") if scaling else ()), "layout", "memory", "a step",
               "tokens/s", "MFU", "exposed", *(("efficiency",) if scaling else ()), "time", "cost"]  # fmt: skip
    rows = [_row(point, scaling=scaling) for point in points]
    output.table(columns, rows)
    for point in points:
        if point.step_s is None:
            output.line(f"{columns[0]} {point.value}: {point.reason}")


def _row(point: Point, *, scaling: bool) -> list[str]:
    if point.step_s is None or point.seconds is None:
        return [point.value, *(("", "") if scaling else ()), "cannot run", *([""] * (8 if scaling else 7))]
    size = [f"{point.devices:,}", format_count(point.batch_tokens or 0)] if scaling else []
    fit = {"fits": "", "uncertain": " (uncertain)"}.get(point.fit, " (does not fit)")
    found = [point.value, *size, point.layout, f"{format_bytes(point.memory_bytes or 0)}{fit}"]
    if point.fit == "does not fit":
        return [*found, *([""] * (7 if scaling else 6))]
    share = "" if point.exposed_s is None else f"{point.exposed_s / point.step_s:.1%}"
    found += [format_seconds(point.step_s), f"{point.tokens_per_s:,.0f}", f"{point.mfu:.1%}", share]
    if scaling:
        found.append("" if point.efficiency is None else f"{point.efficiency:.0%}")
    cost = "unknown" if point.usd is None else format_usd(point.usd.mid)
    return [*found, format_seconds(point.seconds.mid), cost]


def draw(found: Sweep, path: Path) -> None:
    """Throughput against devices for nodes, else the phases of a step for each value."""
    from trainwright.cli import pictures

    fitting = [point for point in found.points if point.phases is not None and point.fit != "does not fit"]
    if found.axis == "nodes":
        points = [
            pictures.ScalingPoint(
                devices=point.devices, tokens_per_s=point.tokens_per_s or 0.0, series=point.series or ""
            )
            for point in fitting
        ]
        pictures.scaling(points, path, stops_at=found.stops_at)
        return
    bars = [
        pictures.StepBar(name=f"{found.axis} {point.value}: {point.layout}", parts=dict(point.phases or {}))
        for point in fitting
    ]
    pictures.step_bars(bars, path)
