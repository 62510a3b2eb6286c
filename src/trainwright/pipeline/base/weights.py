"""Whether a training can begin with the weights of its base: known from recipes, shapes, headers and tokenizers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trainwright.artifact.hub.base import base_folder, is_on_hub, is_whole
from trainwright.artifact.model_folder import HUGGINGFACE, SHAPE_FILE, TOKENIZER, read_shape
from trainwright.artifact.tokenizer import END_OF_TEXT_ID
from trainwright.artifact.weight_headers import check_headers
from trainwright.core.errors import DataError, RecipeError, TrainwrightError
from trainwright.core.paths import read_object
from trainwright.core.registry import is_reference, load
from trainwright.pipeline.graph import Step, upstream
from trainwright.spec.model import ModelSpec
from trainwright.spec.recipe import Recipe

KEY, METHOD = "model.init_from", "train.method.name"
LOADERS = ("torch", "safetensors", "tokenizers")
"""Packages that load a model; a laptop that only plans may lack them."""


def base_problems(
    step: Step, line: tuple[Step, ...], tokenizer: Path | None, *, load_torch: bool
) -> Iterator[TrainwrightError]:
    """Yields why a training cannot begin with the weights that it goes on from; ``where`` is a key of the recipe.

    Args:
        step: the training.
        line: all steps.
        tokenizer: the tokenizer.json of its dataset, where it is known.
        load_torch: whether weights are held against the network, without values, and their tokenizer against the
            dataset's; else, and where torch is not installed, the files' headers say whether they are whole.
    """
    recipe, source = step.recipe, step.inputs.get("base")
    if source is None and recipe.model.init_from is None and recipe.train.method.adapts:
        fix = f"set {KEY}, or let the step go on from another one"
        yield RecipeError("adapters are trained beside a base's weights", where=METHOD, seen="no base", fix=fix)
    if isinstance(source, str):
        base = upstream(line, source)[-1].recipe
        yield from _differences(recipe, base.model_spec(vocabulary=base.data.tokenizer.vocabulary))
    elif source is not None:
        yield from _of_folder(recipe, source, tokenizer, key=f"{step.key}.from", load_torch=load_torch)
    elif recipe.model.init_from is not None:
        yield from _of_named(recipe, recipe.model.init_from, tokenizer, load_torch=load_torch)


def _of_named(recipe: Recipe, named: str, tokenizer: Path | None, *, load_torch: bool) -> Iterator[TrainwrightError]:
    """Yields the same of what ``model.init_from`` names; a model on the hub is downloaded where it is to be trained."""
    try:
        folder = base_folder(named, weights=load_torch)
    except TrainwrightError as error:
        yield error if error.where == KEY else error.at(KEY, seen=named if error.seen is None else error.seen)
        return
    if not folder.is_dir():
        expected = "a Hugging Face directory, a checkpoint, or hf://OWNER/NAME"
        yield DataError("no such directory", where=KEY, seen=named, expected=expected)
    elif load_torch or is_whole(folder) or not is_on_hub(named):
        yield from _of_folder(recipe, folder, tokenizer, key=KEY, load_torch=load_torch)


def _of_folder(
    recipe: Recipe, folder: Path, tokenizer: Path | None, *, key: str, load_torch: bool
) -> Iterator[TrainwrightError]:
    """Yields why training cannot begin with the model in a directory that ``key`` names."""
    try:
        shape = read_base_shape(folder)
        if shape is None:
            return
        yield from _differences(recipe, shape)
        if key == KEY:
            yield from _other_tokens(recipe, shape, folder)
        # What the network of a plug-in does with weights that have no values is not known.
        if is_reference(shape.family):
            return
        if load_torch and all(find_spec(name) is not None for name in LOADERS):
            load("trainwright.model.bundle:check_bundle", kind="check")(folder, tokenizer, where=key)
        else:
            check_headers(folder)
    except TrainwrightError as error:
        seen = error.where if error.seen is None else f"{error.where}: {error.seen}"
        yield error if error.where == key else error.at(key, seen=seen)


def read_base_shape(folder: Path) -> ModelSpec | None:
    """Returns the shape of the model in a directory; None where only code of a plug-in can read it. Raises as that."""
    config = folder / HUGGINGFACE
    foreign = config.is_file() and not (folder / SHAPE_FILE).is_file()
    return None if foreign and is_reference(str(read_object(config).get("model_type"))) else read_shape(folder)


def _differences(recipe: Recipe, shape: ModelSpec) -> Iterator[RecipeError]:
    return recipe.model.differences(recipe.model_spec(vocabulary=shape.vocabulary), shape)


def _other_tokens(recipe: Recipe, shape: ModelSpec, folder: Path) -> Iterator[RecipeError]:
    """Yields a tokenizer that is trained for the recipe and cannot be that of the base."""
    section = recipe.data.tokenizer
    fix = f"set data.tokenizer.kind=pretrained and data.tokenizer.path={folder / TOKENIZER}"
    if section.path is not None or shape.sees_images:
        return
    if section.vocabulary < shape.vocabulary:
        yield RecipeError(
            "the base has more tokens than the tokenizer that is trained for this recipe",
            where="data.tokenizer",
            seen=f"{shape.vocabulary}, at most {section.vocabulary}",
            fix=fix,
        )
    elif not like_trained_here(folder / TOKENIZER, section.end_of_text):
        yield RecipeError(
            "the base's tokenizer is of another kind than the one that is trained for this recipe",
            where="data.tokenizer",
            seen=folder / TOKENIZER,
            expected=f"byte-level BPE with {section.end_of_text!r} as token {END_OF_TEXT_ID}",
            fix=fix,
        )


def like_trained_here(path: Path, end_of_text: str) -> bool:
    """Returns whether training could give these tokens; so too of a file that cannot be read, which others report."""
    try:
        model = read_object(path).get("model")
    except DataError:
        return True
    tokens = model.get("vocab") if isinstance(model, dict) else None
    return isinstance(tokens, dict) and tokens.get(end_of_text) == END_OF_TEXT_ID
