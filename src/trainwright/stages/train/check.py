"""What is wrong with a training and can be known before anything runs; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.core.errors import TrainwrightError
from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.core.registry import is_reference
from trainwright.spec.recipe import Recipe

MAKE = Extension("task", {}, Called(arguments=("recipe", "dataset")))
"""What a plug-in's ``TaskKind.make`` names."""


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    del tokenizer
    if is_reference(recipe.task.name):
        yield from MAKE.problems(recipe.task.kind.make, where="task.name")
