"""A directory with a model: its shape, as its own file or Hugging Face's says it, and its weights' files; no torch."""

from __future__ import annotations

import re
from pathlib import Path

from trainwright.artifact.checkpoint.index import is_checkpoint, read_index
from trainwright.core.errors import DataError
from trainwright.core.paths import read_object
from trainwright.core.records import from_json
from trainwright.spec.families.family import huggingface_form
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.adaptation import Adaptation
from trainwright.spec.parts.targets import TargetScale

SHAPE_FILE, HUGGINGFACE = "model.json", "config.json"
"""One of them is in every directory with a model; ours is read where both are."""
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
ADAPTERS = "adapters.json"
"""Where it is, the weights beside it are those of adapters, and it says of which base (``Adaptation``)."""
CHAT_TEMPLATE, TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
"""How a model that was tuned on chats reads them, beside its tokenizer; in Hugging Face's form."""
IMAGE_PROCESSOR = "preprocessor_config.json"
"""How a picture becomes the input of a model that sees images, which has no tokenizer; in Hugging Face's form."""
TARGET_SCALE = "target_scale.json"
"""In what a model tells numbers (``TargetScale``)."""
MODEL_FILES = (SHAPE_FILE, WEIGHTS, TOKENIZER, ADAPTERS, CHAT_TEMPLATE, TOKENIZER_CONFIG, IMAGE_PROCESSOR, TARGET_SCALE)
"""What a trained model is, in its folder: shape, weights and tokenizer are in each that reads text, an image processor
in each that sees images, the others where it has adapters or chats, or tells numbers."""
INDEX = f"{WEIGHTS}.index.json"
BUFFERS = re.compile(r"(^|\.)(rotary_emb\.inv_freq|attn\.(masked_)?bias|position_ids)$")
"""Tables that older versions of transformers stored beside the weights: rotary frequencies, masks, positions."""
STORED = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""What weights are stored in, by torch's name: the bytes of an element."""
LENGTH_BYTES = 8
"""The length of a safetensors file's header: unsigned, least significant byte first."""
MOST_HEADER_BYTES = 100_000_000
"""The longest header that the format's own library reads."""


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


def read_adaptation(directory: Path) -> Adaptation:
    """Returns what the adapters in a directory stand beside. Raises a DataError where the file cannot be read."""
    path = directory / ADAPTERS
    return from_json(Adaptation, read_object(path), where=str(path))


def read_target_scale(directory: Path) -> TargetScale:
    """Returns in what the model in a directory tells numbers. Raises a DataError where the file cannot be read."""
    path = directory / TARGET_SCALE
    return from_json(TargetScale, read_object(path), where=str(path))


def weight_files(directory: Path) -> list[Path]:
    """Returns where the weights of the model in a directory should be. Raises a DataError where no file is named."""
    if not (directory / SHAPE_FILE).is_file() and (directory / INDEX).is_file():
        names = read_object(directory / INDEX).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise DataError("this index names no files", where=directory / INDEX, expected="weight_map: name to file")
        return [directory / name for name in sorted(set(names.values()))]
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    if is_checkpoint(directory):
        pieces = (piece for tensor in read_index(directory).model.values() for piece in tensor.pieces)
        return [directory / name for name in sorted({piece.file for piece in pieces})]
    raise DataError("no weights here", where=directory, expected=f"{WEIGHTS} or {INDEX}")


def check_stored(name: str, dtype: str, *, where: object) -> None:
    """Raises a DataError where a weight is not stored as floating-point numbers."""
    if dtype not in STORED:
        expected, fix = f"one of {', '.join(STORED)}", "take the model as it was before it was quantised"
        raise DataError("weight {name} is quantised", where=where, seen=dtype, expected=expected, fix=fix, name=name)
