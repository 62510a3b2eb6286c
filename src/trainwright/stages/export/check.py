"""What is wrong with an export and can be known before anything runs; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.plug_in import blaming
from trainwright.spec.families.family import huggingface_config
from trainwright.spec.recipe import Recipe


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    del tokenizer
    for number, name in enumerate(recipe.export.names):
        if name == "huggingface":
            yield from _huggingface(recipe, where=f"export.formats.{number}")
        elif name == "peft":
            yield from _peft(recipe, where=f"export.formats.{number}")


def _peft(recipe: Recipe, *, where: str) -> Iterator[RecipeError]:
    """Yields that there are no adapters to write, or that they would be rounded."""
    if not recipe.train.method.adapts:
        seen, fix = f"train.method.name={recipe.train.method.name}", "set it to lora, or export huggingface"
        yield RecipeError("this form has adapters, and whole weights are trained", where=where, seen=seen, fix=fix)
    if recipe.export.dtype != "fp32":
        yield RecipeError("adapters are written in fp32", where="export.dtype", seen=recipe.export.dtype, fix="drop it")


def _huggingface(recipe: Recipe, *, where: str) -> Iterator[RecipeError]:
    """Yields the family, or the shape, has no form there."""
    spec = recipe.model_spec(vocabulary=recipe.data.tokenizer.vocabulary)
    try:
        with blaming(spec.family, where="model.family"):
            huggingface_config(spec, where=where)
    except RecipeError as error:
        yield error.with_fix("change the model, name another exporter, or list stages without export")
