"""Write one self-contained HTML page about a run, from whatever stages are there; nothing is trained for it.

Sections whose stage has not run say which command makes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwright.cli.arguments import add_recipe_step, load_recipe, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.core.errors import MachineError


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="where report.html is written (default: the workspace)")


def run(args: argparse.Namespace) -> int:
    """Write the page and print where it is.

    Raises:
        MachineError: the workspace cannot be written, and no other place is named.
    """
    # The pipeline brings pydantic and NumPy, which --help must not wait for.
    from trainwright.artifact.events import Events
    from trainwright.artifact.stage import Context
    from trainwright.artifact.store import writable, writing
    from trainwright.core.registry import load
    from trainwright.pipeline.graph import inputs_of, upstream
    from trainwright.pipeline.runner import find
    from trainwright.pipeline.steps import named, steps, with_step

    output = Output.of(args)
    recipe = with_step(load_recipe(args).value, stage="report")
    root = workspace_of(args, name=recipe.name)
    folder = args.out or root
    if not writable(folder):
        raise MachineError(
            "no page can be written here", where=folder, fix="name a folder for it: trainwright report ... --out DIR"
        )
    step = named(recipe, stage="report", step=args.step)
    with writing(folder, field="out"):
        folder.mkdir(parents=True, exist_ok=True)
    made = find(recipe, root=root, upto=step.name)
    missing = [each.name for each in upstream(steps(recipe), step.name)[:-1] if each.name not in made]
    with writing(folder, field="out"), Events(None, run=recipe.name) as events:
        context = Context(recipe=step.recipe, inputs=inputs_of(step, made), out=folder, events=events, root=root)
        load(step.stage.run, kind="stage")(context)
    page = folder / "report.html"

    def text() -> None:
        if missing:
            output.note(f"not there yet: {', '.join(missing)}")
        output.line(str(page))

    output.result(
        {"page": page, "stages": sorted(name for name in made if name != step.name), "missing": missing}, text
    )
    return 0
