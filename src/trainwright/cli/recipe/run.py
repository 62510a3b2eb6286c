"""Do all that a recipe says: plan, prepare data, train, evaluate, audit, export, ask the served model, report.

What is already there is not done again; an interrupted run goes on where it stopped. Results are kept in the workspace.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from trainwright.cli.arguments import (
    add_nodes,
    add_recipe,
    add_workspace,
    load_recipe,
    located,
    take_place,
    workspace_of,
)
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser

if TYPE_CHECKING:
    from trainwright.artifact.store import Artifact
    from trainwright.core.config.load import Loaded
    from trainwright.spec.recipe import Recipe


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe(parser)
    add_workspace(parser)
    add_nodes(parser)
    parser.add_argument(
        "--upto", metavar="NAME", help="stop after this step (a stage, where the recipe lists no steps)"
    )


def run(args: argparse.Namespace) -> int:
    """Run every step, or those up to one, and print what came of them."""
    output = Output.of(args)
    take_place(args)
    _run(args, output, load_recipe(args), upto=args.upto)
    return 0


def run_stage(args: argparse.Namespace, *, stage: str) -> int:
    """Run the steps up to the one of this stage and print what came of them."""
    output = Output.of(args)
    loaded = load_recipe(args)
    _run(args, output, loaded, upto=step_name(args, loaded, stage=stage))
    return 0


def make(args: argparse.Namespace, output: Output, *, stage: str, loaded: Loaded[Recipe] | None = None) -> Artifact:
    """Returns the artefact of this stage for the command's recipe (``loaded``, if it is), and all that it needs."""
    loaded = loaded or load_recipe(args)
    name = step_name(args, loaded, stage=stage)
    return _make(args, output, loaded, upto=name)[name]


def step_name(args: argparse.Namespace, loaded: Loaded[Recipe], *, stage: str) -> str:
    """Returns the name of the step of this stage that the command is about.

    Raises:
        RecipeError: there is none, or several and no ``--step``.
    """
    from trainwright.pipeline.steps import named

    with located(loaded):
        return named(loaded.value, stage=stage, step=args.step).name


def _make(args: argparse.Namespace, output: Output, loaded: Loaded[Recipe], *, upto: str | None) -> dict[str, Artifact]:
    # The pipeline brings pydantic and NumPy, which --help must not wait for.
    from trainwright.pipeline.several.together import run_together

    recipe = loaded.value
    root = workspace_of(args, name=recipe.name)
    with located(loaded), output.progress() as progress:
        return run_together(recipe, root=root, upto=upto, listeners=(progress,))


def _run(args: argparse.Namespace, output: Output, loaded: Loaded[Recipe], *, upto: str | None) -> None:
    from trainwright.render.results.artifacts import documents, show

    made = _make(args, output, loaded, upto=upto)
    payload = {"workspace": workspace_of(args, name=loaded.value.name), "artifacts": documents(made)}
    if not made:
        output.result(payload, lambda: output.note("done: the first command has the results"))
        return
    output.result(payload, lambda: show(made, output))
