"""What is wrong with an export and can be known before anything runs; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.artifact.hub.base import base_folder
from trainwright.artifact.model_folder import read_shape
from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.plug_in import blaming
from trainwright.planner.counts.adapters import placed
from trainwright.spec.families.family import FAMILY, huggingface_config
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
    """Yields that there are no adapters to write, more than these, or parts; or that they would be rounded."""
    if recipe.train.method.adapts:
        yield from _new_head(recipe, where=where)
        yield from _parts_of_joined(recipe, where=where)
    else:
        seen, fix = f"train.method.name={recipe.train.method.name}", "set it to lora, or export huggingface"
        yield RecipeError("this form has adapters, and whole weights are trained", where=where, seen=seen, fix=fix)
    if recipe.export.dtype != "fp32":
        yield RecipeError("adapters are written in fp32", where="export.dtype", seen=recipe.export.dtype, fix="drop it")


def _new_head(recipe: Recipe, *, where: str) -> Iterator[RecipeError]:
    """Yields that a head is trained beside adapters, where the base is a folder; others say what is wrong with that."""
    if recipe.model.init_from is None:
        return
    try:
        base = read_shape(base_folder(recipe.model.init_from, weights=False))
    except TrainwrightError:
        return
    if not base.has_head_of(recipe.model_spec(vocabulary=base.vocabulary)):
        seen, fix = f"a new head beside those of {recipe.model.init_from}", "export the merged weights: huggingface"
        yield RecipeError("this form has adapters alone", where=where, seen=seen, fix=fix)


def _parts_of_joined(recipe: Recipe, *, where: str) -> Iterator[RecipeError]:
    """Yields that DoRA's lengths would be of some rows of a matrix that the family's form has joined of several."""
    method, joined = recipe.train.method, FAMILY.load(recipe.model.family).joined
    if method.name != "dora" or not joined:
        return
    try:
        chosen = placed(recipe.model_spec(vocabulary=1), method.targets)
    except RecipeError:
        return  # the training says it
    for names in joined:
        layers: dict[str, set[str]] = {}
        for path, matrix in chosen.items():
            if matrix.name in names:
                layers.setdefault(path.rpartition(".")[0], set()).add(matrix.name)
        for layer, some in layers.items():
            if some != set(names):
                seen, fix = f"{', '.join(sorted(some))} of {layer}", f"adapt all of {', '.join(names)}, or none"
                yield RecipeError("DoRA's lengths are of all rows of a module there", where=where, seen=seen, fix=fix)
                return


def _huggingface(recipe: Recipe, *, where: str) -> Iterator[RecipeError]:
    """Yields the family, or the shape, has no form there."""
    spec = recipe.model_spec(vocabulary=recipe.data.tokenizer.vocabulary)
    try:
        with blaming(spec.family, where="model.family"):
            huggingface_config(spec, where=where)
    except RecipeError as error:
        yield error.with_fix("change the model, name another exporter, or list stages without export")
