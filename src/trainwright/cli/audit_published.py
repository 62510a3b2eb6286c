"""``audit --published FILE``: predicts every row of a table of measured runs, and says how far off the planner is."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cli.output import Output
from trainwright.core.errors import DataError, RecipeError
from trainwright.core.units import format_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from trainwright.cli.parser import CommandParser
    from trainwright.planner.published.report import Errors, Judged, Report
    from trainwright.planner.published.totals import Skipped, Total

FIRST = "first"
"""``--calibrate first``: the first row of each source and device is a run that is known."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of this form of the command."""
    group = parser.add_argument_group("published runs")
    group.add_argument("--published", type=Path, metavar="FILE", help="a CSV of measured runs (docs/en/published.md)")
    group.add_argument(
        "--calibrate", metavar="FILE|first",
        help="measured runs to learn from (JSON or CSV); first: the first row of each source and device",
    )  # fmt: skip
    group.add_argument(
        "--worst", type=int, default=5, metavar="N", help="how many of the worst rows to show (default: 5)"
    )
    group.add_argument("--draw", type=Path, metavar="FILE", help="predicted against measured, as .svg or .png")


def asked(args: argparse.Namespace) -> bool:
    """Whether a table is to be judged, and not a recipe.

    Raises:
        RecipeError: arguments of both forms at once.
    """
    needing = [name for name in ("calibrate", "draw") if getattr(args, name) is not None]
    if args.published is None:
        if needing:
            raise RecipeError("needs a table of published runs", where=f"--{needing[0]}", fix="add --published FILE")
        return False
    if args.inputs or args.preset:
        raise RecipeError(
            "judges a table and no recipe", where="--published",
            seen=" ".join(args.inputs) or f"--preset {args.preset}",
            fix="leave one of them out",
        )  # fmt: skip
    if args.worst < 0:
        raise RecipeError("must be at least 0", where="--worst", seen=args.worst)
    return True


def run(args: argparse.Namespace, output: Output) -> int:
    """Judge the table and print: measured runs, or totals of whole trainings."""
    from trainwright.planner.published.rows import columns
    from trainwright.planner.published.totals import REQUIRED as TOTALS

    return _totals(args, output) if set(TOTALS) <= set(columns(args.published)) else _runs(args, output)


def _totals(args: argparse.Namespace, output: Output) -> int:
    from trainwright.planner.published.report import errors
    from trainwright.planner.published.rows import read_records
    from trainwright.planner.published.totals import REQUIRED, replay

    if args.calibrate is not None:
        raise RecipeError("whole trainings are not calibrated", where="--calibrate", fix="leave it out")
    totals, skipped = replay(read_records(args.published, required=REQUIRED))
    inside = [total.low_hours <= total.reported_hours <= total.high_hours for total in totals]
    found = errors([total.ratio for total in totals], inside)
    payload = {
        "device_hours": _plain(found), "trainings": [asdict(total) | {"ratio": total.ratio} for total in totals],
        "skipped": [asdict(row) for row in skipped],
    }  # fmt: skip
    if args.draw is not None:
        draw(
            [(total.device, total.reported_hours, total.hours) for total in totals], args.draw, unit="device-hours",
            title="Whole trainings, predicted and published",
        )  # fmt: skip
    output.result(
        {"published": str(args.published), "report": payload}, lambda: show_totals(totals, skipped, found, output)
    )
    _say_drawn(args, output)
    return 0


def show_totals(totals: list[Total], skipped: list[Skipped], found: Errors | None, output: Output) -> None:
    """Device-hours of every training, and rows that are none."""
    if found is not None:
        output.heading(
            f"{found.rows} trainings: device-hours off by {found.median:.1%} in the median, bias {found.bias:+.1%}, "
            f"{found.held:.0%} in range"
        )
    output.table(
        ("training", "device", "devices", "predicted", "between", "reported", "ratio"),
        [
            (
                total.name, total.device, f"{total.devices:,}", f"{total.hours:,.0f} h",
                f"{total.low_hours:,.0f} to {total.high_hours:,.0f}", f"{total.reported_hours:,.0f} h",
                f"{total.ratio:.2f}",
            )
            for total in totals
        ],
    )  # fmt: skip
    if skipped:
        output.line()
        output.table(("not replayed", "because"), [(row.name, row.reason) for row in skipped])


def _runs(args: argparse.Namespace, output: Output) -> int:
    from trainwright.planner.published.question import questions
    from trainwright.planner.published.report import calibrated, calibrated_by_first, judge_all, known_runs, report
    from trainwright.planner.published.rows import read_records

    known = known_runs(Path(args.calibrate)) if args.calibrate not in (None, FIRST) else []
    rows, refused = questions(read_records(args.published))
    judged, more = judge_all(rows)
    judged = calibrated_by_first(judged) if args.calibrate == FIRST else calibrated(judged, known) if known else judged
    found = report(judged, [*refused, *more], worst=args.worst)
    if args.draw is not None:
        # Classes of models are few enough to tell apart.
        points = [
            (each.row.model_class, each.row.measured.tokens_per_s, each.tokens_per_s.mid)
            for each in judged
            if each.row.measured.tokens_per_s and not each.row.measured.derived
        ]
        draw(points, args.draw, unit="tokens/s per device", title="Training throughput, predicted and published")
    output.result({"published": str(args.published), "report": as_json(found)}, lambda: show(found, output))
    _say_drawn(args, output)
    return 0


def _say_drawn(args: argparse.Namespace, output: Output) -> None:
    if args.draw is not None:
        output.note(f"drawn: {args.draw}")


def as_json(found: Report) -> dict[str, Any]:
    """Everything but the rows' own questions."""
    return {
        "rows": found.rows, "predicted": found.predicted, "coverage": found.coverage,
        "refused": [asdict(row) for row in found.refused], "throughput": _plain(found.speed),
        "throughput_derived": _plain(found.derived), "memory": _plain(found.memory),
        "verdicts": None if found.verdicts is None else asdict(found.verdicts),
        "groups": [
            {"by": group.by, "name": group.name, "throughput": _plain(group.speed), "memory": _plain(group.memory)}
            for group in found.groups
        ],
        "worst_throughput": [_row_json(each) for each in found.worst_speed],
        "worst_memory": [_row_json(each) for each in found.worst_memory],
    }  # fmt: skip


def _plain(errors: Errors | None) -> dict[str, Any] | None:
    return None if errors is None else asdict(errors)


def _row_json(each: Judged) -> dict[str, Any]:
    return {
        "id": each.row.id, "source": each.row.source, "line": each.row.line, "verdict": each.verdict,
        "tokens_per_s_per_device": asdict(each.tokens_per_s), "measured_tokens_per_s": each.row.measured.tokens_per_s,
        "memory_bytes": asdict(each.memory_bytes), "measured_memory_bytes": each.row.measured.memory_bytes,
    }  # fmt: skip


def show(found: Report, output: Output) -> None:
    """Totals, verdicts, groups, worst rows, refused rows."""
    output.heading(
        f"{found.predicted:,} of {found.rows:,} rows predicted ({found.coverage:.1%})"
        + (f"; throughput off by {found.speed.median:.1%} in the median" if found.speed else "")
        + (f", memory by {found.memory.median:.1%}" if found.memory else "")
    )
    lines = (("throughput", found.speed), ("throughput, from step times", found.derived), ("memory", found.memory))
    output.table(
        ("", "rows", "median", "mean", "p90", "bias", "in range"),
        [(name, *cells(errors)) for name, errors in lines if errors is not None],
    )
    if found.verdicts is not None:
        verdict = found.verdicts
        output.line()
        output.line(
            f"fits or not: {verdict.right:.1%} right of those it is sure of; {verdict.uncertain} of "
            f"{verdict.ran + verdict.ran_out} uncertain; {verdict.false_alarms:.1%} false alarms; of {verdict.ran_out} "
            f"that ran out of memory {verdict.found:.0%} refused, {verdict.found_or_uncertain:.0%} refused or uncertain"
        )
    for by in dict.fromkeys(group.by for group in found.groups):
        output.line()
        output.table(
            (f"by {by}", "rows", "median", "p90", "bias", "memory rows", "median", "p90", "bias"),
            [
                (cut(group.name), *short(group.speed), *short(group.memory))
                for group in found.groups
                if group.by == by and (group.speed or group.memory)
            ],
        )
    output.line()
    rate: list[tuple[object, ...]] = [
        (each.row.id, each.row.framework, each.row.device, f"{each.tokens_per_s.mid:,.0f} tokens/s",
         f"{each.row.measured.tokens_per_s:,.0f} tokens/s", f"{each.speed_ratio:.2f}") for each in found.worst_speed
    ]  # fmt: skip
    rate += [
        (each.row.id, each.row.framework, each.row.device, format_bytes(each.memory_bytes.mid),
         format_bytes(each.row.measured.memory_bytes or 0.0), f"{each.memory_ratio:.2f}") for each in found.worst_memory
    ]  # fmt: skip
    output.table(("worst rows", "framework", "device", "predicted", "measured", "ratio"), rate)
    if found.refused:
        output.line()
        reasons = Counter(row.reason for row in found.refused)
        output.table(("refused rows", "because"), [(count, reason) for reason, count in reasons.most_common()])


def cut(name: str, *, width: int = 48) -> str:
    """A long name's beginning."""
    return name if len(name) <= width else f"{name[: width - 3].rstrip()}..."


def cells(errors: Errors) -> tuple[str, ...]:
    """Rows, median, mean, 90th percentile, bias, share inside the range."""
    sizes = (errors.median, errors.mean, errors.p90)
    return (f"{errors.rows:,}", *(f"{size:.1%}" for size in sizes), f"{errors.bias:+.1%}", f"{errors.held:.0%}")


def short(errors: Errors | None) -> tuple[str, ...]:
    """Rows, median, 90th percentile, bias; empty where nothing was measured."""
    if errors is None:
        return "", "", "", ""
    return f"{errors.rows:,}", f"{errors.median:.1%}", f"{errors.p90:.1%}", f"{errors.bias:+.1%}"


def draw(points: Sequence[tuple[str, float, float]], path: Path, *, unit: str, title: str) -> None:
    """A point for each row: its group, what was measured, what is predicted.

    Raises:
        DataError: there is none.
    """
    from trainwright.cli.pictures import ScatterPoint, scatter

    if not points:
        raise DataError("nothing to draw", where=path, seen="no row that was measured and predicted")
    scatter(
        [ScatterPoint(source=group, measured=measured, predicted=predicted) for group, measured, predicted in points],
        path, unit=unit, title=title,
    )  # fmt: skip
