"""Plans of which one thing varies, as a table and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_count, format_seconds
from trainwright.render import pictures
from trainwright.render.page import Page

if TYPE_CHECKING:
    from trainwright.planner.plan.sweep import Point, Sweep
    from trainwright.spec.convnet import AnyModel


def show(sweep: Sweep, page: Page, model: AnyModel) -> None:
    """Shows a table for each series, and where more devices stop paying; of a model that sees images in images."""
    titles = {"strong": "strong scaling: the batch stays", "weak": "weak scaling: the batch grows with the nodes"}
    for place, series in enumerate(dict.fromkeys(point.series for point in sweep.points)):
        if place:
            page.line()
        points = [point for point in sweep.points if point.series == series]
        if series is not None:
            page.heading(titles[series])
        _table(sweep.axis, points, page, model, scaling=series is not None)
    if sweep.axis != "nodes":
        return
    page.line()
    critical = sweep.critical_batch_tokens
    if critical is not None and any((point.batch_tokens or 0) > critical for point in sweep.points):
        most = format_count(critical / model.batch_unit_tokens)
        page.line(f"batches above {most}, the critical one, take more {model.batch_unit} to the same loss")
    if sweep.stops_at is None:
        page.line("every further device brings at least half of what a device of the smallest cluster does")
    else:
        page.line(
            f"more than {sweep.stops_at:,} devices do not pay: each further one brings less than half of what a device "
            "of the smallest cluster does"
        )


def _table(axis: str, points: list[Point], page: Page, model: AnyModel, *, scaling: bool) -> None:
    columns = [
        axis.replace("_", " "),
        *(("devices", "batch") if scaling else ()),
        "layout",
        "memory",
        "a step",
        f"{model.batch_unit}/s",
        "MFU",
        "exposed",
        *(("efficiency",) if scaling else ()),
        "time",
        "cost",
    ]
    rows = [_row(point, model.batch_unit_tokens, scaling=scaling) for point in points]
    page.table(columns, rows)
    for point in points:
        if point.step_s is None:
            page.line(f"{columns[0]} {point.value}: {point.reason}")


def _row(point: Point, each: int, *, scaling: bool) -> list[str]:
    if point.step_s is None or point.seconds is None:
        return [point.value, *(("", "") if scaling else ()), "cannot run", *([""] * (8 if scaling else 7))]
    size = [f"{point.devices:,}", format_count((point.batch_tokens or 0) // each)] if scaling else []
    fit = {"fits": "", "uncertain": " (uncertain)"}.get(point.fit, " (does not fit)")
    cells = [point.value, *size, point.layout, f"{format_bytes(point.memory_bytes or 0)}{fit}"]
    if point.fit == "does not fit":
        return [*cells, *([""] * (7 if scaling else 6))]
    share = "" if point.exposed_s is None else f"{point.exposed_s / point.step_s:.1%}"
    cells += [format_seconds(point.step_s), f"{(point.tokens_per_s or 0.0) / each:,.0f}", f"{point.mfu:.1%}", share]
    if scaling:
        cells.append("" if point.efficiency is None else f"{point.efficiency:.0%}")
    cost = "unknown" if point.usd is None else format_usd(point.usd.mid)
    return [*cells, format_seconds(point.seconds.mid), cost]


def draw(sweep: Sweep, path: Path) -> None:
    """Throughput against devices for nodes, else the phases of a step for each value."""
    fitting = [point for point in sweep.points if point.phases is not None and point.fit != "does not fit"]
    if sweep.axis == "nodes":
        points = [
            pictures.ScalingPoint(
                devices=point.devices, tokens_per_s=point.tokens_per_s or 0.0, series=point.series or ""
            )
            for point in fitting
        ]
        pictures.scaling(points, path, stops_at=sweep.stops_at)
        return
    bars = [
        pictures.StepBar(name=f"{sweep.axis} {point.value}: {point.layout}", parts=dict(point.phases or {}))
        for point in fitting
    ]
    pictures.step_bars(bars, path)
