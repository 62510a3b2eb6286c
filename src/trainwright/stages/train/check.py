"""What is wrong with a training and can be known before anything runs; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.core.registry import is_reference, load
from trainwright.core.spelling import did_you_mean
from trainwright.spec.recipe import Recipe

METRICS = {
    "next-token": ("loss", "bits_per_byte", "perplexity"),
    "classify": ("loss", "accuracy", "macro_f1"),
}
"""What our tasks measure on the validation split."""
PLACE = "trainwright.runtime.elsewhere:place_problem"
MAKE = Extension("task", {}, Called(arguments=("recipe", "dataset")))
"""What a plug-in's ``TaskKind.make`` names."""


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    del tokenizer
    how, task = recipe.train.exec, recipe.task.name
    if is_reference(task):
        yield from MAKE.problems(recipe.task.kind.make, where="task.name")
    metric = how.best_by.split()[-1]
    if how.keep_best and metric not in METRICS.get(task, (metric,)):
        known = METRICS[task]
        yield RecipeError(
            "{task} measures nothing of this name",
            where="train.exec.best_by",
            seen=repr(metric),
            expected=f"one of {', '.join(known)}",
            fix=did_you_mean(metric, known),
            task=task,
        )
    if how.checkpoint_to is not None and find_spec("fsspec") is not None:
        problem: TrainwrightError | None = load(PLACE, kind="check")(how.checkpoint_to)
        if problem is not None:
            yield problem
