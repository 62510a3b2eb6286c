"""What is wrong with a training and can be known before anything runs; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.core.errors import DataError, RecipeError, TrainwrightError
from trainwright.core.extension import Extension
from trainwright.core.paths import local_path
from trainwright.core.plug_in import Called
from trainwright.core.records import from_json, read_object
from trainwright.core.registry import is_reference
from trainwright.core.units import parse_duration
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.families.family import huggingface_form
from trainwright.spec.model import ModelSpec
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.train import OPTIMIZER, SCHEDULE

OURS, HUGGINGFACE = "model.json", "config.json"
"""One of them is in every directory with a model."""

MAKE = Extension("task", {}, Called(arguments=("recipe", "dataset")))
"""What a plug-in's ``TaskKind.make`` names."""


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    del tokenizer
    yield from _duration(recipe)
    yield from _pretrained(recipe)
    if is_reference(recipe.task.name):
        yield from MAKE.problems(recipe.task.kind.make, where="task.name")
    yield from OPTIMIZER.problems(recipe.train.optimizer.name, where="train.optimizer.name")
    yield from SCHEDULE.problems(recipe.train.schedule.name, where="train.schedule.name")


def _duration(recipe: Recipe) -> Iterator[TrainwrightError]:
    section = recipe.train
    duration = parse_duration(section.duration)
    if duration.unit == "epochs":
        if duration.value <= 0:
            yield RecipeError("no training", where="train.duration", seen=section.duration, expected="epochs > 0")
        return
    parameters = total_parameters(recipe.model_spec(vocabulary=recipe.data.tokenizer.vocabulary))
    tokens = duration.tokens(batch_tokens=section.batch_tokens, parameters=parameters)
    if round(tokens / section.batch_tokens) < 1:
        yield RecipeError(
            "the run is shorter than one update",
            where="train.duration",
            seen=section.duration if duration.unit == "tokens" else f"{section.duration}, which is {tokens} tokens",
            expected=f"at least train.batch_tokens ({section.batch_tokens})",
            fix="write for example 100 steps",
        )


def _pretrained(recipe: Recipe) -> Iterator[TrainwrightError]:
    named = recipe.model.init_from
    if named is None:
        return
    try:
        folder = local_path(named)
    except RecipeError as error:
        yield error.at("model.init_from")
        return
    expected = "a Hugging Face directory or a checkpoint"
    if not folder.is_dir():
        yield DataError("no such directory", where="model.init_from", seen=named, expected=expected)
    elif not any((folder / name).is_file() for name in (OURS, HUGGINGFACE)):
        yield DataError("no model in this directory", where="model.init_from", seen=named, expected=expected)
    else:
        yield from base_problems(recipe, folder)


def base_problems(recipe: Recipe, base: Recipe | Path) -> Iterator[TrainwrightError]:
    """Yields why training cannot begin with the weights of a base.

    Args:
        recipe: of the training.
        base: the recipe that the base is trained with, or the directory with its model.
    """
    try:
        shape = (
            base.model_spec(vocabulary=base.data.tokenizer.vocabulary)
            if isinstance(base, Recipe)
            else _read_shape(base)
        )
    except TrainwrightError as error:
        yield error
        return
    if shape is not None:
        yield from recipe.model.differences(recipe.model_spec(vocabulary=shape.vocabulary), shape)


def _read_shape(directory: Path) -> ModelSpec | None:
    """Returns the shape of the model in a directory; None where only code of a plug-in can read it.

    Raises:
        DataError: its file cannot be read.
        RecipeError: it describes a model of a family that is not trained here, or that cannot be.
    """
    if (directory / OURS).is_file():
        return from_json(ModelSpec, read_object(directory / OURS), where=str(directory / OURS))
    path = directory / HUGGINGFACE
    config = read_object(path)
    family = str(config.get("model_type"))
    if is_reference(family):
        return None
    spec: ModelSpec = huggingface_form(family, where=str(path)).from_config(config, where=str(path))
    return spec
