"""Train the model that a recipe describes; makes machine facts, plan and dataset first where they are missing.

An interrupted run goes on from its last checkpoint, to the same weights.
"""

from __future__ import annotations

import argparse

from trainwright.cli.arguments import add_nodes, add_recipe_step, take_place
from trainwright.cli.parser import CommandParser
from trainwright.cli.recipe.run import run_stage


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)
    add_nodes(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stages up to training and print what came of them."""
    take_place(args)
    return run_stage(args, stage="train")
