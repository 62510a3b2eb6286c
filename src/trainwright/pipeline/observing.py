"""A look at a training: what it needs is made, and a part of it runs again in a folder beside its artefact."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from trainwright.artifact.events import Events, Listener
from trainwright.artifact.stage import Context
from trainwright.artifact.store import Artifact, writing
from trainwright.artifact.workspace import Workspace
from trainwright.core.errors import RecipeError
from trainwright.core.place import place_of
from trainwright.core.registry import load
from trainwright.core.units import parse_duration
from trainwright.pipeline import runner
from trainwright.pipeline.graph import inputs_of
from trainwright.pipeline.preflight import check
from trainwright.pipeline.steps import named, steps
from trainwright.spec.recipe import Recipe

FOLDER = "looks"
"""Of a workspace: what looks at trainings left; nothing in it is an artefact."""


def look(
    recipe: Recipe,
    *,
    root: Path,
    step: str | None,
    into: str,
    last: int,
    option: str,
    work: str,
    options: Mapping[str, Any],
    listeners: tuple[Listener, ...] = (),
) -> Path:
    """Makes what a training needs, and lets a function look at it.

    Args:
        recipe: with its list of steps.
        root: the workspace; made where it is absent.
        step: which training; None: the only one.
        into: what the look's folder is called.
        last: the last update that is looked at.
        option: that asked for it, for errors.
        work: ``module:function`` of ``(context, run, **options)``; ``run`` is the training's folder, None without one.
        options: of that function.
        listeners: called with every event, for progress.

    Returns:
        The folder that it wrote.

    Raises:
        RecipeError: there is no such training, or it is shorter; it would run on several hosts, or a launcher
            started this command.
        TrainwrightError: as the pipeline, and of the function.
    """
    _check_alone(recipe)
    line, training = steps(recipe), named(recipe, stage="train", step=step)
    _check_length(training.recipe, last, option)
    done: dict[str, Artifact] = {}
    for source in training.inputs.values():
        if isinstance(source, str):
            done |= runner.run(recipe, root=root, upto=source, listeners=listeners)
    index = [each.name for each in line].index(training.name)
    check(line[index : index + 1], line, done)
    with training.placing():
        here = runner.address(training.stage, training.recipe, inputs_of(training, done), root)
        final = Workspace(root).path(training.stage.name, here.fingerprint)
        out = root / FOLDER / f"{final.name}-{into}"
        found = [path for path in (final, final.with_name(f"{final.name}.partial")) if path.is_dir()]
        with writing(out), closing(Events(None, run=recipe.name, listeners=listeners)) as events:
            out.mkdir(parents=True, exist_ok=True)
            context = Context(
                recipe=_apart(here.recipe),
                inputs=here.inputs,
                digests=here.digests,
                out=out,
                events=events,
                root=root,
            )
            load(work, kind="look")(context, run=next(iter(found), None), **options)
    return out


def _apart(recipe: Recipe) -> Recipe:
    """Returns a recipe whose checkpoints stay in the look's folder: the run's own place is the run's alone."""
    how = recipe.train.exec.model_copy(update={"checkpoint_to": None, "keep_best": 0})
    alone = recipe.train.model_copy(update={"exec": how, "early_stopping": None})
    return recipe.model_copy(update={"train": alone})


def _check_length(recipe: Recipe, last: int, option: str) -> None:
    """Refuses an update that a training of so many steps does not make; other durations are known once it begins."""
    duration = parse_duration(recipe.train.duration)
    if duration.unit == "steps" and last > round(duration.value):
        most = f"at most {round(duration.value)}"
        raise RecipeError("the run ends before this step", where=option, seen=str(last), expected=most)


def _check_alone(recipe: Recipe) -> None:
    """Refuses several hosts, and a command that a launcher started beside others."""
    if recipe.train.exec.nodes > 1:
        fix = "leave out train.exec.nodes, and give it a layout of this host"
        raise RecipeError("one host looks at a training", where="train.exec.nodes", fix=fix)
    place = place_of(os.environ, nodes=1)
    if place is not None:
        raise RecipeError(
            "one command looks at a training, and starts the ranks itself",
            where=place.launcher,
            seen=f"process {place.rank} of {place.commands}",
            fix="run it outside torchrun and srun",
        )
