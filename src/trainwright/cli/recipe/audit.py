"""Hold the plan against what training measured: time and memory, part by part.

What it needs and is not there is made first. With --published FILE instead of a recipe, every row of a table of
published runs is predicted, and the errors are counted.
"""

from __future__ import annotations

import argparse
import json

from trainwright.cli.arguments import add_recipe_step
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.cli.recipe import audit_published
from trainwright.cli.recipe.run import make


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)
    audit_published.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stages up to the audit and print it."""
    output = Output.of(args)
    if audit_published.asked(args):
        return audit_published.run(args, output)
    artifact = make(args, output, stage="audit")
    # Records need pydantic, which --help must not wait for.
    from trainwright.core.records import from_json
    from trainwright.planner.evidence.audit import Audit
    from trainwright.render.results.audit import show

    artifact.verify()
    document = json.loads(artifact.file("audit.json").read_text(encoding="utf-8"))
    audit = from_json(Audit, document, where=str(artifact.path))
    output.result({"artifact": artifact.path, "audit": document}, lambda: show(audit, output))
    return 0
