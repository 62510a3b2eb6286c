"""``audit --published FILE``: predicts every row of a table of measured runs, and says how far off the planner is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.output import Output
from trainwright.core.errors import RecipeError

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser

FIRST = "first"
"""``--calibrate first``: the first row of each source and device is a run that is known."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of this form of the command."""
    group = parser.add_argument_group("published runs")
    group.add_argument(
        "--published",
        type=Path,
        action="append",
        metavar="FILE",
        help="a CSV of measured runs (docs/en/published.md); give it again for a second table",
    )
    group.add_argument(
        "--calibrate",
        metavar="FILE|first",
        help="measured runs to learn from (JSON or CSV); first: the first row of each source and device",
    )
    group.add_argument(
        "--worst", type=int, default=5, metavar="N", help="how many of the worst rows to show (default: 5)"
    )
    group.add_argument("--draw", type=Path, metavar="FILE", help="predicted against measured, as .svg or .png")


def asked(args: argparse.Namespace) -> bool:
    """Returns whether a table is to be judged, and not a recipe.

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
            "judges a table and no recipe",
            where="--published",
            seen=" ".join(args.inputs) or f"--preset {args.preset}",
            fix="leave one of them out",
        )
    if args.worst < 0:
        raise RecipeError("must be at least 0", where="--worst", seen=args.worst)
    return True


def run(args: argparse.Namespace, output: Output) -> int:
    """Judge the table and print: measured runs, or totals of whole trainings."""
    from trainwright.planner.evidence.rows import columns
    from trainwright.planner.evidence.totals import REQUIRED as TOTALS

    kinds = [set(TOTALS) <= set(columns(path)) for path in args.published]
    if any(kinds) and not all(kinds):
        raise RecipeError(
            "judges runs or whole trainings, not both at once",
            where="--published",
            seen=_names(args),
            fix="ask twice",
        )
    return _totals(args, output) if all(kinds) else _runs(args, output)


def _names(args: argparse.Namespace) -> str:
    return ", ".join(map(str, args.published))


def _totals(args: argparse.Namespace, output: Output) -> int:
    from trainwright.planner.evidence.report import errors
    from trainwright.planner.evidence.rows import read_tables
    from trainwright.planner.evidence.totals import REQUIRED, replay
    from trainwright.render.results.published import draw_totals, show_totals, totals_document

    if args.calibrate is not None:
        raise RecipeError("whole trainings are not calibrated", where="--calibrate", fix="leave it out")
    totals, skipped = replay(read_tables(args.published, required=REQUIRED))
    inside = [total.low_hours <= total.reported_hours <= total.high_hours for total in totals]
    error_counts = errors([total.ratio for total in totals], inside)
    if args.draw is not None:
        draw_totals(totals, args.draw)
    payload = {"published": _names(args), "report": totals_document(totals, skipped, error_counts)}
    output.result(payload, lambda: show_totals(totals, skipped, error_counts, output))
    _note_drawn(args, output)
    return 0


def _runs(args: argparse.Namespace, output: Output) -> int:
    from trainwright.planner.evidence.published_run import questions
    from trainwright.planner.evidence.report import calibrated, calibrated_by_first, judge_all, known_runs, report
    from trainwright.planner.evidence.rows import read_tables
    from trainwright.render.results.published import as_json, draw_throughput, show

    known = known_runs(Path(args.calibrate)) if args.calibrate not in (None, FIRST) else []
    rows, refused = questions(read_tables(args.published))
    unmeasured = [row for row in rows if row.measured.is_empty]
    judged, more = judge_all(row for row in rows if not row.measured.is_empty)
    judged = calibrated_by_first(judged) if args.calibrate == FIRST else calibrated(judged, known) if known else judged
    published_report = report(judged, [*refused, *more], unmeasured=unmeasured, worst=args.worst)
    if args.draw is not None:
        draw_throughput(judged, args.draw)
    output.result(
        {"published": _names(args), "report": as_json(published_report)}, lambda: show(published_report, output)
    )
    _note_drawn(args, output)
    return 0


def _note_drawn(args: argparse.Namespace, output: Output) -> None:
    if args.draw is not None:
        output.note(f"drawn: {args.draw}")
