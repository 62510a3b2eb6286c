"""List the recipes that come with trainwright, or print one: to run it as it stands, or to change a copy.

``trainwright init`` writes a new recipe for your own model and data.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from trainwright.cli.output import Output
from trainwright.core.paths import local_path

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser


def configure(parser: CommandParser) -> None:
    """A name, and where to write it."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the recipe to print (default: list all)")
    parser.add_argument("-o", "--out-file", metavar="FILE", help="write it there in place of printing it")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")


def run(args: argparse.Namespace) -> int:
    """List them, print one, or write one."""
    output = Output.of(args)
    if args.name is None:
        _refuse_file(args)
        return _list(output)
    return _one(args, output)


def _refuse_file(args: argparse.Namespace) -> None:
    from trainwright.core.errors import RecipeError

    if args.out_file is not None or args.force:
        raise RecipeError("no recipe is named", where="NAME", fix="trainwright recipes lists their names")


def _list(output: Output) -> int:
    from trainwright.pipeline.recipes.shipped import shipped_recipes

    recipes = list(shipped_recipes().values())
    payload = {"recipes": [{"name": each.name, "says": each.says, "takes": each.takes} for each in recipes]}
    rows = [(each.name, each.says, each.takes or "not measured") for each in recipes]

    def text() -> None:
        output.table(("recipe", "what", "took"), rows)
        output.line("trainwright recipes NAME -o FILE writes one out")

    output.result(payload, text)
    return 0


def _one(args: argparse.Namespace, output: Output) -> int:
    from trainwright.pipeline.recipes.shipped import shipped_recipe
    from trainwright.pipeline.recipes.writing import write

    recipe = shipped_recipe(args.name)
    path = None if args.out_file is None else local_path(args.out_file)
    if path is not None:
        write(recipe.text, path, force=args.force)
    payload = {"name": recipe.name, "says": recipe.says, "takes": recipe.takes, "file": path, "text": recipe.text}

    def text() -> None:
        if path is None:
            output.verbatim(recipe.text.rstrip("\n"))
            return
        output.line(f"wrote {path}")
        output.line(f"  trainwright run {shlex.quote(str(path))}")

    output.result(payload, text)
    return 0
