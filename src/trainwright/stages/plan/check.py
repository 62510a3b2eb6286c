"""What is wrong with a plan's questions and can be known before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.hardware.catalogue.devices import device
from trainwright.spec.recipe import Recipe


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    del tokenizer
    for number, name in enumerate(recipe.plan.rent_on):
        try:
            device(name, where=f"plan.rent_on.{number}")
        except RecipeError as error:
            yield error
