"""Write the trained model for other tools; trains it first where it is not trained yet."""

from __future__ import annotations

import argparse

from trainwright.cli.arguments import add_recipe_step
from trainwright.cli.parser import CommandParser
from trainwright.cli.recipe.run import run_stage


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stages up to the export and print what came of them."""
    return run_stage(args, stage="export")
