"""Plans a run on a cluster and prints it: verdict, memory, phases, needs, other layouts, and what it rests on."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwright.cli.output import Output
from trainwright.cli.plan.following import asked_by, following, offered, write_recipe
from trainwright.cli.plan.question import OF_SERVING, question_of, refuse


def run(args: argparse.Namespace) -> int:
    """Plan, and print the plan, an explanation, or a sweep."""
    refuse(args, OF_SERVING, what="this is about serving", fix="add --inference, or say --batch, --sequence")
    question = question_of(args)
    if args.sweep is not None:
        from trainwright.cli.plan.sweep import run as run_sweep

        refuse(args, ("explain", "write_recipe"), what="a sweep is many plans", fix="ask for one of them")
        return run_sweep(args, question)
    from trainwright.planner.explain.swing import largest
    from trainwright.planner.plan.cluster import planned
    from trainwright.planner.plan.scenario import scenario_of
    from trainwright.planner.plan.ways import with_ways
    from trainwright.render.plans.cluster import show

    output = Output.of(args)
    if args.draw is not None:
        from trainwright.render.pictures import drawable
        from trainwright.render.plans.drawing import draw

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
    most = [{"key": each.assumption.key, "factor": each.factor, "of": each.of} for each in largest(plan)]
    payload = {
        "plan": plan,
        "at_rate": planned_run.at_rate,
        "keeping": planned_run.keeping,
        "critical_batch": planned_run.critical,
        "outlives_machines": planned_run.outlives_machines,
        "rests_on_most": most,
        "changes": planned_run.changes,
        "surely_fits": next(iter(planned_run.changes), None) if plan.estimate.fit == "uncertain" else None,
    }
    if args.write_recipe is not None and plan.estimate.fits:
        write_recipe(args, question, plan)
    line = following(args, question, planned_run)
    told = {"following": line, "offered": offered(args, question, planned_run)}
    asked = asked_by(args, question, planned_run)
    output.result(payload, lambda: show(plan, planned_run, question, output, asked_by=asked, **told))
    if args.write_recipe is not None:
        wrote = f"wrote {args.write_recipe}: name your data in it, data.sources"
        output.note(wrote if plan.estimate.fits else f"{args.write_recipe} is not written: the plan does not fit")
    for path in drawn:
        output.note(f"drawn: {path}")
    return 0 if plan.estimate.fits else 1
