"""What is wrong with a plan's questions and can be known before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.core.errors import MachineError, RecipeError, TrainwrightError
from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.machine.room import check_rotary
from trainwright.spec.recipe import Recipe


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    del tokenizer
    for number, name in enumerate(recipe.plan.rent_on):
        try:
            device(name, where=f"plan.rent_on.{number}")
        except RecipeError as error:
            yield error
    try:
        # Made before the first step, on this machine whatever the plan is for; no class of a plan's memory counts it.
        check_rotary(recipe.model_spec(vocabulary=recipe.data.tokenizer.vocabulary), where="model.context_tokens")
    except MachineError as error:
        yield error
    except RecipeError:
        return  # an impossible model, which the training reports
