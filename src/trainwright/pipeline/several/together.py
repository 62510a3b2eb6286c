"""Runs a recipe with the other commands that were started for it: the first one makes artefacts, all of them train."""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.artifact.events import Events, Listener
from trainwright.artifact.store import Artifact
from trainwright.core.place import place_of
from trainwright.core.registry import load
from trainwright.pipeline import runner
from trainwright.pipeline.several.unheeded import unheeded
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.layout import LayoutSection


def run_together(
    recipe: Recipe, *, root: Path, upto: str | None = None, listeners: tuple[Listener, ...] = ()
) -> dict[str, Artifact]:
    """Makes every artefact up to a step, or helps the command that does; alone it is ``runner.run``.

    Returns:
        The artefacts by step name; none where another command makes them.

    Raises:
        RecipeError: the launcher's processes are not the layout's, or nodes have no number or meeting place.
        RecipeErrors: the commands differ in versions, recipe or inputs.
        MachineError: they do not find each other within ``train.exec.rendezvous_timeout``.
        TrainwrightError: as ``runner.run``.
    """
    how = recipe.train.exec
    place = place_of(os.environ, nodes=how.nodes if "nodes" in how.model_fields_set else None)
    if place is not None and isinstance(how.layout, LayoutSection):
        place.check(how.layout.parallel().ranks)
    if place is None or place.commands == 1:
        return runner.run(recipe, root=root, upto=upto, listeners=listeners)
    line = unheeded(place, how) if place.leads else None
    if line is not None:
        Events(None, run=recipe.name, listeners=listeners).message(line)
    together = load("trainwright.stages.train.ranks.several.together:together", kind="layout")
    with together(place, recipe):
        return runner.run(recipe, root=root, upto=upto, listeners=listeners) if place.leads else {}
