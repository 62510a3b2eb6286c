"""Trains as little as can be, in a process of its own; prints the modules of ours that this loaded, as JSON.

``python plain_training.py DATASET PLAN RECIPE OUT``: the folders of two artefacts, a recipe as JSON, a new folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.artifact.store import open_artifact
from trainwright.spec.recipe import Recipe
from trainwright.stages.train import run


def main(dataset: str, plan: str, recipe: str, out: str) -> None:
    """Runs the stage and prints what is loaded."""
    folder = Path(out)
    folder.mkdir()
    inputs = {"dataset": open_artifact(Path(dataset)), "plan": open_artifact(Path(plan))}
    asked = Recipe.model_validate_json(recipe)
    with Events(None, run="plain") as events:
        run(Context(recipe=asked, inputs=inputs, out=folder, root=folder.parent, events=events))
    loaded = [name for name in sys.modules if name.partition(".")[0] == "trainwright"]
    print(json.dumps(sorted(loaded)))


if __name__ == "__main__":
    main(*sys.argv[1:])
