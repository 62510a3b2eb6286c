"""Write one self-contained HTML page about a run, from whatever stages are there; nothing is trained for it.

Sections whose stage has not run say which command makes it.
"""

from __future__ import annotations

import argparse

from trainwright.cli.arguments import add_recipe, add_workspace, load_recipe, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe(parser)
    add_workspace(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page and print where it is."""
    # The pipeline brings pydantic and NumPy, which --help must not wait for.
    from trainwright.artifact.events import Events
    from trainwright.artifact.store import writing
    from trainwright.core.registry import load
    from trainwright.pipeline.graph import STAGES
    from trainwright.pipeline.runner import find

    output = Output.of(args)
    recipe = load_recipe(args).value
    root = workspace_of(args, name=recipe.name)
    stage = STAGES["report"]
    found = {name: artifact for name, artifact in find(recipe, root=root, upto="report").items() if name in stage.needs}
    missing = [name for name in stage.needs if name not in found]
    with writing(root), Events(None, run=recipe.name) as events:
        root.mkdir(parents=True, exist_ok=True)
        load(stage.run, kind="stage")(recipe, found, root, events)
    page = root / "report.html"

    def text() -> None:
        if missing:
            output.note(f"not there yet: {', '.join(missing)}")
        output.line(str(page))

    output.result({"page": page, "stages": sorted(found), "missing": missing}, text)
    return 0
