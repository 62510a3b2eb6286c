"""``plan --sweep``: one thing varied, as a table and a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.output import Output
from trainwright.core.errors import RecipeError

if TYPE_CHECKING:
    from trainwright.planner.plan.question import Question


def run(args: argparse.Namespace, question: Question) -> int:
    """Plan each value and print one line for it."""
    from trainwright.planner.plan.layout import parse_layout
    from trainwright.planner.plan.sweep import parse_sweep, sweep
    from trainwright.render.pictures import drawable
    from trainwright.render.plans.sweep import draw, show

    output = Output.of(args)
    if args.draw is not None:
        drawable(Path(args.draw))
    axis, values = parse_sweep(args.sweep)
    if args.layout is not None and axis in parse_layout(args.layout, field="layout"):
        seen, fix = f"--layout {args.layout} and --sweep {args.sweep}", "leave it out of --layout"
        raise RecipeError("what varies cannot be fixed too", where=f"--sweep {axis}", seen=seen, fix=fix)
    points = sweep(question, axis, values)
    if args.draw is not None:
        draw(points, Path(args.draw))
    output.result({"sweep": points}, lambda: show(points, output, question.model))
    if args.draw is not None:
        output.note(f"drawn: {args.draw}")
    return 0
