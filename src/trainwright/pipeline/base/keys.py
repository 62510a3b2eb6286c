"""What a recipe leaves out because its base says it: the keys of its shape, and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwright.artifact.hub.base import base_folder
from trainwright.artifact.model_folder import TOKENIZER
from trainwright.artifact.tokenizer import END_OF_TEXT_ID, end_of_text_of
from trainwright.core.config.tree import Node, ValueOrigin, node_of
from trainwright.core.errors import DataError, TrainwrightError
from trainwright.pipeline.base.weights import like_trained_here, read_base_shape
from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.data import TokenizerSection
from trainwright.spec.sections.model import keys_of

_NEEDED = ("layers", "width", "heads")
"""Keys of ``model`` that no default stands for."""


def keys_of_base(recipe: Node) -> Node | None:
    """Returns the keys that follow from ``model.init_from`` of a recipe, or None where there is no base to read.

    They are those of ``model`` that make the base's shape, and, where the recipe says no kind of tokenizer, that of the
    base with its end of text. They stand below all that is written: what a recipe says of its own is held against the
    base when it is checked.

    Args:
        recipe: what all its layers wrote.

    Raises:
        TrainwrightError: the base cannot be read, and the recipe does not say the shape itself.
    """
    model = recipe.child("model")
    named = None if model is None else model.child("init_from")
    if model is None or named is None or not isinstance(named.content, str):
        return None
    try:
        folder = base_folder(named.content, weights=False)
        shape = _shape(folder)
    except TrainwrightError as error:
        if all(model.child(name) is not None for name in _NEEDED):
            return None  # whether it can be trained is checked later
        seen = error.where if error.seen is None else f"{error.where}: {error.seen}"
        raise error.at(named.origin, seen=seen) from error
    if shape is None:
        return None
    keys: dict[str, Any] = {"model": keys_of(shape)}
    if not shape.sees_images and _takes_tokenizer(recipe, shape, folder):
        keys["data"] = {"tokenizer": _tokenizer(folder, shape)}
    return node_of(keys, ValueOrigin(layer="base", where=f"base {named.content}"))


def _shape(folder: Path) -> ModelSpec | None:
    if not folder.is_dir():
        raise DataError("no such directory", where=folder, expected="a Hugging Face directory or a checkpoint")
    return read_base_shape(folder)


def _takes_tokenizer(recipe: Node, shape: ModelSpec, folder: Path) -> bool:
    """Returns whether a recipe leaves open which tokenizer it has.

    So too where it says the base's vocabulary, by which a plan counts before the base is there, and no training of a
    tokenizer could give the base's.
    """
    data = recipe.child("data")
    tokenizer = None if data is None else data.child("tokenizer")
    written: Any = {} if tokenizer is None else tokenizer.plain() or {}
    if data is None or not isinstance(written, dict) or not set(written) <= {"end_of_text", "vocabulary"}:
        return False
    end = str(written.get("end_of_text", TokenizerSection.model_fields["end_of_text"].default))
    same = written.get("vocabulary") == shape.vocabulary and not like_trained_here(folder / TOKENIZER, end)
    return "vocabulary" not in written or same


def _tokenizer(folder: Path, shape: ModelSpec) -> dict[str, Any]:
    """Returns the keys of a base's tokenizer; of one that is missing the entries, by which a plan counts."""
    if not (folder / TOKENIZER).is_file():
        return {"vocabulary": shape.vocabulary} if shape.vocabulary > END_OF_TEXT_ID else {}
    end = end_of_text_of(folder)
    return {"kind": "pretrained", "path": str(folder / TOKENIZER)} | ({} if end is None else {"end_of_text": end})
