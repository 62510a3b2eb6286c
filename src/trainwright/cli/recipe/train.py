"""Train the model that a recipe describes; makes machine facts, plan and dataset first where they are missing.

An interrupted run goes on from its last checkpoint, to the same weights. With --dry-run nothing is started: a step of
the recipe's layout runs on tensors without memory, and what each rank keeps and sends is shown beside the plan. With
--break-at a step is kept whole, beside the run: state, batch, and a script that repeats it to the bit.
"""

from __future__ import annotations

import argparse

from trainwright.cli.arguments import add_nodes, add_recipe_step, load_recipe, located, take_place, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.cli.recipe.run import run_stage
from trainwright.core.errors import RecipeError


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)
    add_nodes(parser)
    parser.add_argument("--dry-run", action="store_true", help="count what each rank keeps and sends; start nothing")
    parser.add_argument("--break-at", metavar="STEP", type=int, help="keep this update, and write what repeats it")
    parser.add_argument("--on", metavar="CLUSTER", help="of a dry run: 8x8xh100-sxm (default: this processor)")


def run(args: argparse.Namespace) -> int:
    """Run the stages up to training and print what came of them; or count one step, and print that."""
    if args.dry_run:
        if args.break_at is not None:
            fix = "leave out --dry-run, or it"
            raise RecipeError("a dry run makes no update", where="--break-at", seen=str(args.break_at), fix=fix)
        return _dry_run(args)
    if args.on is not None:
        raise RecipeError(
            "only a dry run is of another cluster", where="--on", seen=args.on, fix="add --dry-run, or leave it out"
        )
    if args.break_at is not None:
        return _break_off(args)
    take_place(args)
    return run_stage(args, stage="train")


def _dry_run(args: argparse.Namespace) -> int:
    from trainwright.pipeline.planning import training_of
    from trainwright.pipeline.several.dry_run import dry_run
    from trainwright.render.plans.dry_run import show

    output, loaded = Output.of(args), load_recipe(args)
    root = workspace_of(args, name=loaded.value.name)
    with located(loaded), output.progress() as progress:
        training, _ = training_of(loaded.value, root=root, step=args.step)
        counted = dry_run(training, root=root, on=args.on, listeners=(progress,))
    output.result({"dry_run": counted}, lambda: show(counted, output))
    return 0


def _break_off(args: argparse.Namespace) -> int:
    from trainwright.core.paths import read_object
    from trainwright.pipeline.observing import look

    if args.break_at < 1:
        raise RecipeError("no such update", where="--break-at", seen=str(args.break_at), expected="1 or more")
    output, loaded = Output.of(args), load_recipe(args)
    root = workspace_of(args, name=loaded.value.name)
    with located(loaded), output.progress() as progress:
        folder = look(
            loaded.value,
            root=root,
            step=args.step,
            into=f"step-{args.break_at}",
            last=args.break_at,
            option="--break-at",
            work="trainwright.stages.train.observe.broken_off:break_run",
            listeners=(progress,),
            options={"step": args.break_at},
        )
    computed, script = read_object(folder / "computed.json"), folder / "repeat.py"
    payload = {"folder": folder, "script": script, "step": args.break_at, **computed}
    text = f"update {args.break_at}: loss {computed['loss']!r}, gradient norm {computed['grad_norm']!r}"
    output.result({"kept": payload}, lambda: output.line(text))
    output.note(f"it is repeated by: python {script}")
    return 0
