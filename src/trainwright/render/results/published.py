"""Errors of predictions of published runs: totals, verdicts, groups, the worst rows, pictures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.core.errors import DataError
from trainwright.core.units import format_bytes
from trainwright.render.page import Page
from trainwright.render.pictures import ScatterPoint, scatter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.planner.evidence.published_run import Refused
    from trainwright.planner.evidence.report import Errors, Judged, Report, Verdicts
    from trainwright.planner.evidence.totals import Skipped, Total

LINES = 3
"""Of a reason's rows, how many are named."""
SETTINGS = 12
"""That were not used, how many are named."""


def totals_document(totals: list[Total], skipped: list[Skipped], errors: Errors | None) -> dict[str, Any]:
    """Returns the JSON document of whole trainings."""
    return {
        "device_hours": _plain(errors),
        "trainings": [asdict(total) | {"ratio": total.ratio} for total in totals],
        "skipped": [asdict(row) for row in skipped],
    }


def draw_totals(totals: list[Total], path: Path) -> None:
    """Draws a point for each training.

    Raises:
        DataError: there is none.
    """
    points = [(total.device, total.reported_hours, total.hours) for total in totals]
    draw(points, path, unit="device-hours", title="Whole trainings, predicted and published")


def draw_throughput(judged: Sequence[Judged], path: Path) -> None:
    """Draws a point for each run whose throughput was measured, by class of model: few enough to tell apart.

    Raises:
        DataError: there is none.
    """
    points = [
        (each.row.model_class, each.row.measured.tokens_per_s, each.tokens_per_s.mid)
        for each in judged
        if each.row.measured.tokens_per_s and not each.row.measured.derived
    ]
    draw(points, path, unit="tokens/s per device", title="Training throughput, predicted and published")


def show_totals(totals: list[Total], skipped: list[Skipped], errors: Errors | None, page: Page) -> None:
    """Device-hours of every training, and rows that are none."""
    if errors is None:
        page.heading("no training in these tables can be replayed")
    else:
        page.heading(
            f"{errors.rows} trainings: device-hours off by {errors.median:.1%} in the median, bias {errors.bias:+.1%}, "
            f"{errors.in_range:.0%} in range"
        )
        columns = ("training", "device", "devices", "predicted", "between", "reported", "ratio")
        page.table(columns, [_training(total) for total in totals])
    if skipped:
        page.line()
        page.table(("not replayed", "because"), [(row.name, row.reason) for row in skipped])


def _training(total: Total) -> tuple[str, ...]:
    return (
        total.name,
        total.device,
        f"{total.devices:,}",
        f"{total.hours:,.0f} h",
        f"{total.low_hours:,.0f} to {total.high_hours:,.0f}",
        f"{total.reported_hours:,.0f} h",
        f"{total.ratio:.2f}",
    )


def as_json(report: Report) -> dict[str, Any]:
    """Everything but the rows' own questions."""
    return {
        "rows": report.rows,
        "predicted": report.predicted,
        "coverage": report.coverage,
        "refused": [asdict(row) for row in report.refused],
        "unmeasured": [{"id": row.id, "source": row.source, "line": row.line} for row in report.unmeasured],
        "throughput": _plain(report.speed),
        "throughput_derived": _plain(report.derived),
        "memory": _plain(report.memory),
        "verdicts": None if report.verdicts is None else asdict(report.verdicts),
        "groups": [
            {"by": group.by, "name": group.name, "throughput": _plain(group.speed), "memory": _plain(group.memory)}
            for group in report.groups
        ],
        "worst_throughput": [_row_json(each) for each in report.worst_speed],
        "worst_memory": [_row_json(each) for each in report.worst_memory],
        "unused_settings": dict(report.unused),
    }


def _plain(errors: Errors | None) -> dict[str, Any] | None:
    return None if errors is None else asdict(errors)


def _row_json(each: Judged) -> dict[str, Any]:
    return {
        "id": each.row.id,
        "source": each.row.source,
        "line": each.row.line,
        "verdict": each.verdict,
        "tokens_per_s_per_device": asdict(each.tokens_per_s),
        "measured_tokens_per_s": each.row.measured.tokens_per_s,
        "memory_bytes": asdict(each.memory_bytes),
        "measured_memory_bytes": each.row.measured.memory_bytes,
    }


def show(report: Report, page: Page) -> None:
    """Totals, verdicts, groups, worst rows, refused rows."""
    page.heading(
        f"{report.predicted:,} of {report.rows:,} rows predicted ({report.coverage:.1%})"
        + (f"; throughput off by {report.speed.median:.1%} in the median" if report.speed else "")
        + (f", memory by {report.memory.median:.1%}" if report.memory else "")
    )
    if not report.rows and not report.unmeasured:
        page.line("no row in these tables: nothing was read")
    lines = (("throughput", report.speed), ("throughput, from step times", report.derived), ("memory", report.memory))
    if rows := [(name, *cells(errors)) for name, errors in lines if errors is not None]:
        page.table(("", "rows", "median", "mean", "p90", "bias", "in range"), rows)
    if report.verdicts is not None:
        page.line()
        page.line(_verdict(report.verdicts))
    _groups(report, page)
    if rows := [*map(_speed_row, report.worst_speed), *map(_memory_row, report.worst_memory)]:
        page.line()
        page.table(("worst rows", "framework", "device", "predicted", "measured", "ratio"), rows)
    _not_judged(report, page)


def _groups(report: Report, page: Page) -> None:
    for by in dict.fromkeys(group.by for group in report.groups):
        page.line()
        page.table(
            (f"by {by}", "rows", "median", "p90", "bias", "memory rows", "median", "p90", "bias"),
            [
                (cut(group.name), *short(group.speed), *short(group.memory))
                for group in report.groups
                if group.by == by and (group.speed or group.memory)
            ],
        )


def _speed_row(each: Judged) -> tuple[str, ...]:
    predicted, measured = f"{each.tokens_per_s.mid:,.0f} tokens/s", f"{each.row.measured.tokens_per_s:,.0f} tokens/s"
    return each.row.id, each.row.framework, each.row.device, predicted, measured, f"{each.speed_ratio:.2f}"


def _memory_row(each: Judged) -> tuple[str, ...]:
    predicted, measured = format_bytes(each.memory_bytes.mid), format_bytes(each.row.measured.memory_bytes or 0.0)
    return each.row.id, each.row.framework, each.row.device, predicted, measured, f"{each.memory_ratio:.2f}"


def _not_judged(report: Report, page: Page) -> None:
    """Rows that were refused or measure nothing, and settings that nobody reads."""
    if report.refused:
        page.line()
        page.table(("refused rows", "where", "because"), _refusals(report.refused))
    if report.unmeasured:
        page.line()
        count = f"{len(report.unmeasured):,} more row{'' if len(report.unmeasured) == 1 else 's'}"
        page.line(f"{count} without a measurement: {_places([row.line for row in report.unmeasured])}")
    if report.unused:
        page.line()
        named = [f"{name} ({count:,})" for name, count in report.unused.items()]
        more = f" and {len(named) - SETTINGS} more" if len(named) > SETTINGS else ""
        page.line(f"settings in notes that were not used, and of how many rows: {', '.join(named[:SETTINGS])}{more}")


def _verdict(verdict: Verdicts) -> str:
    rows = verdict.ran + verdict.ran_out
    sure = f"{verdict.right:.1%} right of those it is sure of; " if verdict.uncertain < rows else ""
    alarms = f"; {verdict.false_alarms:.1%} false alarms" if verdict.ran else ""
    out = (
        f"; of {verdict.ran_out} that ran out of memory {verdict.recall:.0%} refused, "
        f"{verdict.recall_with_uncertain:.0%} refused or uncertain"
    )
    return f"fits or not: {sure}{verdict.uncertain} of {rows} uncertain{alarms}{out if verdict.ran_out else ''}"


def _refusals(refused: Sequence[Refused]) -> list[tuple[int, str, str]]:
    """Returns a row for each reason, the most frequent first: how many rows, where they stand, and why."""
    lines: dict[str, list[int]] = {}
    for row in refused:
        lines.setdefault(row.reason, []).append(row.line)
    ranked = sorted(lines.items(), key=lambda item: -len(item[1]))
    return [(len(places), _places(places), reason) for reason, places in ranked]


def _places(lines: Sequence[int]) -> str:
    """Returns the first lines by number: ``line 3``, ``lines 3, 9, 12 and 4 more``."""
    named = f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:LINES]))}"
    return f"{named} and {len(lines) - LINES} more" if len(lines) > LINES else named


def cut(name: str) -> str:
    """Returns a long name's beginning."""
    return name if len(name) <= 48 else f"{name[:45].rstrip()}..."


def cells(errors: Errors) -> tuple[str, ...]:
    """Rows, median, mean, 90th percentile, bias, share inside the range."""
    sizes = (errors.median, errors.mean, errors.p90)
    return (f"{errors.rows:,}", *(f"{size:.1%}" for size in sizes), f"{errors.bias:+.1%}", f"{errors.in_range:.0%}")


def short(errors: Errors | None) -> tuple[str, ...]:
    """Rows, median, 90th percentile, bias; empty where nothing was measured."""
    if errors is None:
        return "", "", "", ""
    return f"{errors.rows:,}", f"{errors.median:.1%}", f"{errors.p90:.1%}", f"{errors.bias:+.1%}"


def draw(points: Sequence[tuple[str, float, float]], path: Path, *, unit: str, title: str) -> None:
    """Draws a point for each row: its group, what was measured, what is predicted.

    Raises:
        DataError: there is none.
    """
    if not points:
        raise DataError("nothing to draw", where=path, seen="no row that was measured and predicted")
    scatter(
        [ScatterPoint(source=group, measured=measured, predicted=predicted) for group, measured, predicted in points],
        path,
        unit=unit,
        title=title,
    )
