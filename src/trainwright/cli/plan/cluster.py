"""Plans a run on a cluster and prints it: verdict, memory, phases, needs, other layouts, and what it rests on."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwright.cli.output import Output
from trainwright.cli.plan.question import OF_SERVING, question_of, refuse


def run(args: argparse.Namespace) -> int:
    """Plan, and print the plan, an explanation, or a sweep."""
    refuse(args, OF_SERVING, what="this is about serving", fix="add --inference, or say --batch, --sequence")
    question = question_of(args)
    if args.sweep is not None:
        from trainwright.cli.plan.sweep import run as run_sweep

        refuse(args, ("explain",), what="a sweep is many plans", fix="explain one of them")
        return run_sweep(args, question)
    from trainwright.planner.plan.cluster import planned, with_ways
    from trainwright.planner.plan.scenario import scenario_of
    from trainwright.render.pictures import drawable
    from trainwright.render.plans.cluster import draw, show

    output = Output.of(args)
    if args.draw is not None:
        drawable(Path(args.draw))
    planned_run = planned(scenario_of(question))
    if args.explain is not None:
        from trainwright.planner.explain.registry import explain
        from trainwright.render.plans.explanation import show_explanation

        explained = explain(planned_run, args.explain)
        output.result({"explanation": explained}, lambda: show_explanation(explained, output))
        return 0
    planned_run = with_ways(planned_run)
    plan = planned_run.plan
    # Pictures come first: whoever reads the answer may stop early (``| head``).
    drawn = () if args.draw is None else draw(plan, planned_run, Path(args.draw))
    output.result({"plan": plan}, lambda: show(plan, planned_run, question, output))
    for path in drawn:
        output.note(f"drawn: {path}")
    return 0 if plan.estimate.fits else 1
