"""Turn a recipe's corpus into token shards, and show what was kept and what was dropped, by reason.

An interrupted run goes on from its last part. The report is kept as report.json beside the shards.
"""

from __future__ import annotations

import argparse
import json

from trainwright.cli.arguments import add_recipe_step
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.cli.recipe.run import make
from trainwright.render.results.dataset import show


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)


def run(args: argparse.Namespace) -> int:
    """Prepare the dataset and print its funnel."""
    output = Output.of(args)
    artifact = make(args, output, stage="data")
    artifact.verify({"report.json"})
    report = json.loads(artifact.file("report.json").read_text(encoding="utf-8"))
    execution = artifact.manifest.execution
    payload = {"path": artifact.path, "fingerprint": artifact.manifest.fingerprint, "execution": execution, **report}
    output.result(payload, lambda: show(report, execution, output))
    if not output.json:
        output.line()
        output.line(f"data: {artifact.path}")
    return 0
