"""Measure the trained model: loss, perplexity and bits per byte of held-out text beside compressors and n-grams.

What it needs and is not there is made first: the dataset, the plan, the training run.
"""

from __future__ import annotations

import argparse

from trainwright.artifact.evaluation import FILE, FORMAT, read_evaluation
from trainwright.cli.arguments import add_recipe_step
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.cli.recipe.run import make
from trainwright.render.results.evaluation import show


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stages up to evaluation and print what was measured."""
    output = Output.of(args)
    artifact = make(args, output, stage="evaluate")
    artifact.verify()
    evaluation = read_evaluation(artifact.file(FILE))
    payload = {"artifact": artifact.path, "evaluation": evaluation}
    output.result(payload, lambda: show(evaluation, output), version=FORMAT)
    return 0
