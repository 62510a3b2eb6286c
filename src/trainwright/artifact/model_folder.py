"""The shape of the model in a directory, as its own file or Hugging Face's says it; no torch, no weights."""

from __future__ import annotations

from pathlib import Path

from trainwright.core.errors import DataError
from trainwright.core.records import from_json, read_object
from trainwright.spec.families.family import huggingface_form
from trainwright.spec.model import ModelSpec

SHAPE_FILE, HUGGINGFACE = "model.json", "config.json"
"""One of them is in every directory with a model; ours is read where both are."""
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
MODEL_FILES = (SHAPE_FILE, WEIGHTS, TOKENIZER)
"""What a trained model's folder has."""


def read_shape(directory: Path) -> ModelSpec:
    """Returns the shape of the model in a directory.

    Raises:
        DataError: there is no model, or its file cannot be read.
        RecipeError: it describes something that is not computed here.
    """
    path = directory / SHAPE_FILE
    if path.is_file():
        return from_json(ModelSpec, read_object(path), where=str(path))
    path = directory / HUGGINGFACE
    if not path.is_file():
        raise DataError("no model here", where=directory, expected=f"a directory with {SHAPE_FILE} or {HUGGINGFACE}")
    config = read_object(path)
    family = huggingface_form(str(config.get("model_type")), where=str(path))
    spec: ModelSpec = family.from_config(config, where=str(path))
    return spec
