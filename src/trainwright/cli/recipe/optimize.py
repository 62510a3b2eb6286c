"""Make a training faster, one technique at a time: each is measured on this machine, and kept where it helps.

Begins with the naive configuration (fp32, eager, micro batch 1, whole scores and logits, AdamW operation by operation),
measures each technique between two measurements without it, predicted beside measured, and writes the tuned recipe: the
given one with what was decided, measured beside it. An interrupted ladder goes on with what was being measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwright.cli.arguments import add_recipe_step, load_recipe, located, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)
    parser.add_argument(
        "--draw", metavar="FILE", type=Path, help="what each technique brought, as FILE.svg or FILE.png"
    )


def run(args: argparse.Namespace) -> int:
    """Climb the ladder, print it, and say where the tuned recipe is."""
    # Records and the pipeline need pydantic, which --help must not wait for.
    from trainwright.core.paths import read_object
    from trainwright.core.records import from_json
    from trainwright.pipeline.runner import run as run_pipeline
    from trainwright.pipeline.steps import to_optimize
    from trainwright.planner.evidence.ladder import FILE, FORMAT, TUNED_FILE, Ladder
    from trainwright.render.pictures import drawable
    from trainwright.render.results.ladder import draw, show

    output, loaded = Output.of(args), load_recipe(args)
    if args.draw is not None:
        drawable(args.draw)
    root = workspace_of(args, name=loaded.value.name)
    with located(loaded), output.progress() as progress:
        recipe, name = to_optimize(loaded.value, step=args.step)
        artifact = run_pipeline(recipe, root=root, upto=name, listeners=(progress,))[name]
    artifact.verify()
    document = read_object(artifact.file(FILE))
    ladder = from_json(Ladder, document, where=str(artifact.path))
    tuned = artifact.file(TUNED_FILE)
    payload = {"artifact": artifact.path, "tuned": tuned, "ladder": document}
    output.result(payload, lambda: show(ladder, output), version=FORMAT)
    if args.draw is not None:
        draw(ladder, args.draw)
        output.note(f"drawn: {args.draw}")
    stays = "the recipe stays as it was given: train it as it is"
    output.note(stays if ladder.stays else f"the tuned recipe: trainwright train {tuned}")
    return 0
