"""Arguments that commands share: the recipe, its overrides and preset, the workspace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.parser import CommandParser
from trainwright.core.errors import RecipeError, RecipeErrors, TrainwrightError
from trainwright.core.paths import local_path
from trainwright.core.place import NODE_RANK, RENDEZVOUS, nodes_of
from trainwright.pipeline.presets import preset_file

if TYPE_CHECKING:
    import argparse

    from trainwright.core.config.load import Loaded
    from trainwright.spec.recipe import Recipe

RESERVED = frozenset(
    ("TRAINWRIGHT_API_KEY", "TRAINWRIGHT_DEBUG", "TRAINWRIGHT_HOME", "TRAINWRIGHT_WORKSPACE", NODE_RANK, RENDEZVOUS)
)
"""Environment variables that are not keys of the recipe."""

_OVERRIDE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*=")


def add_recipe(parser: CommandParser) -> None:
    """``RECIPE.yaml ... KEY=VALUE ... --preset NAME``; ``load_recipe`` reads them."""
    parser.add_argument(
        "inputs", nargs="*", metavar="RECIPE|KEY=VALUE", help="recipe files, later ones win, and keys set over them"
    )
    parser.add_argument("--preset", metavar="NAME", help="ready-made settings below the recipe files")


def add_workspace(parser: CommandParser) -> None:
    """``--workspace DIR``; ``workspace_of`` reads it."""
    parser.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="where results are kept (default: $TRAINWRIGHT_WORKSPACE, or runs/<name of the recipe>)",
    )


def add_recipe_step(parser: CommandParser) -> None:
    """Adds a recipe, its workspace and ``--step NAME``."""
    add_recipe(parser)
    add_step(parser)


def add_step(parser: CommandParser) -> None:
    """Adds a workspace and ``--step NAME``: which step of a recipe's list a command is about."""
    add_workspace(parser)
    parser.add_argument(
        "--step", metavar="NAME", help="which step of the recipe's list, where several are of this stage"
    )


def add_nodes(parser: CommandParser) -> None:
    """Adds what tells one command of many its place; ``take_place`` reads it."""
    parser.add_argument("--nodes", metavar="N", help="hosts that train together, with this very command on each")
    parser.add_argument("--node-rank", metavar="K", help="number of this host, from 0; the first makes all artefacts")
    parser.add_argument("--rendezvous", metavar="HOST:PORT", help="where they meet: a free port of the first host")


def take_place(args: argparse.Namespace) -> None:
    """Sets what ``place_of`` reads, and the recipe's number of nodes, from the options or a launcher's variables."""
    for name, value in ((NODE_RANK, args.node_rank), (RENDEZVOUS, args.rendezvous)):
        if value is not None:
            os.environ[name] = value
    nodes = args.nodes if args.nodes is not None else nodes_of(os.environ)
    if nodes is not None:
        args.inputs = [*args.inputs, f"train.exec.nodes={nodes}"]


def workspace_of(args: argparse.Namespace, *, name: str) -> Path:
    """Returns the directory that keeps the results of the recipe called ``name``."""
    return chosen_workspace(args) or Path("runs") / name


def chosen_workspace(args: argparse.Namespace) -> Path | None:
    """Returns the directory that the user names for results, by option or environment variable."""
    chosen = vars(args).get("workspace") or os.environ.get("TRAINWRIGHT_WORKSPACE")
    return local_path(str(chosen)) if chosen else None


def load_recipe(args: argparse.Namespace) -> Loaded[Recipe]:
    """Returns the recipe from the files, preset, environment and overrides of a command line.

    Raises:
        RecipeError: there is none, or an unknown preset.
        RecipeErrors: everything that is wrong in it, its list of steps included.
        DataError: the model that ``model.init_from`` names cannot be read, and the recipe does not say its shape.
    """
    return read_recipe(args.inputs, preset=args.preset, command=args.command)


def read_recipe(inputs: Sequence[str], *, preset: str | None, command: str) -> Loaded[Recipe]:
    """Returns the recipe from ``inputs`` (files and ``key=value``), a preset's name and the environment.

    Raises:
        RecipeError: there is none, or an unknown preset.
        RecipeErrors: everything that is wrong in it, its list of steps included.
        DataError: the model that ``model.init_from`` names cannot be read, and the recipe does not say its shape.
    """
    # pydantic and the recipe's models take longer to import than all of --help may.
    from trainwright.core.config.load import load
    from trainwright.pipeline.base.keys import keys_of_base
    from trainwright.pipeline.steps import steps
    from trainwright.spec.recipe import Recipe

    files, overrides = split_inputs(inputs)
    if not files and preset is None:
        raise RecipeError(
            "no recipe",
            expected="a recipe file or --preset NAME",
            fix=f"for example: trainwright {command} recipes/quickstart.yaml",
        )
    below = None if preset is None else preset_file(preset)
    loaded = load(
        Recipe,
        files=files,
        preset=below,
        overrides=overrides,
        environ=os.environ,
        ignore=RESERVED,
        beneath=keys_of_base,
    )
    if loaded.value.stages is not None:
        with located(loaded):
            steps(loaded.value)
    return loaded


@contextmanager
def located(loaded: Loaded[Recipe]) -> Iterator[None]:
    """Say of a problem that names a key of the recipe where that key was written.

    Raises:
        TrainwrightError: the problem, with its place.
    """
    try:
        yield
    except RecipeErrors as error:
        raise RecipeErrors(loaded.located(problem) for problem in error.problems) from error
    except TrainwrightError as error:
        placed = loaded.located(error)
        if placed is error:
            raise
        raise placed from error


def split_inputs(inputs: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Files and ``key=value`` overrides; a path with a slash before its ``=`` is a path."""
    overrides = [text for text in inputs if _OVERRIDE.match(text)]
    return [Path(text) for text in inputs if not _OVERRIDE.match(text)], overrides
