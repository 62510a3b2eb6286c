"""Hugging Face directories: read and written with safetensors, no transformers needed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.core.errors import DataError
from trainwright.core.records import read_object
from trainwright.model.weights import load_weights, save_weights
from trainwright.spec.families.family import huggingface_config, huggingface_form
from trainwright.spec.model import ModelSpec

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read_spec(directory: Path) -> ModelSpec:
    """The shape of the model in a Hugging Face directory.

    Raises:
        DataError: there is no readable ``config.json``.
        RecipeError: it describes something we do not compute.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise DataError("no such file", where=path, expected="a Hugging Face model directory")
    config = read_object(path)
    spec: ModelSpec = huggingface_form(str(config.get("model_type")), where=str(path)).from_config(
        config, where=str(path)
    )
    return spec


def read_weights(directory: Path, spec: ModelSpec) -> dict[str, Tensor]:
    """The weights of a Hugging Face directory under our names, in fp32.

    Raises:
        DataError: no safetensors files, a damaged one, or a missing or misshapen weight; names it.
    """
    weights: dict[str, Tensor] = {}
    for path in _weight_files(directory):
        weights |= load_weights(path)
    try:
        ours: dict[str, Tensor] = huggingface_form(spec.family, where=str(directory)).from_hf(weights, spec)
    except KeyError as error:
        raise DataError("a weight is missing", where=directory, expected=str(error.args[0])) from error
    return {name: weight.to(torch.float32) for name, weight in ours.items()}


def _weight_files(directory: Path) -> list[Path]:
    if (directory / INDEX).is_file():
        names = read_object(directory / INDEX)["weight_map"].values()
        return [directory / name for name in sorted(set(names))]
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    raise DataError("no weights here", where=directory, expected=f"{WEIGHTS} or {INDEX}")


def write(
    directory: Path, spec: ModelSpec, weights: Mapping[str, Tensor], *, dtype: torch.dtype, extra: dict[str, Any]
) -> None:
    """Write ``config.json`` and ``model.safetensors``.

    Args:
        directory: where; it exists.
        spec: the shape.
        weights: our names to weights.
        dtype: stored precision.
        extra: further configuration keys, such as token ids.

    Raises:
        RecipeError: the shape has no form in that family of Hugging Face.
        MachineError: the disk is full, or the place cannot be written.
    """
    config = huggingface_config(spec, where=str(directory))
    form = huggingface_form(spec.family, where=str(directory))
    theirs = {name: weight.to(dtype) for name, weight in form.to_hf(weights, spec).items()}
    config |= {"dtype": str(dtype).removeprefix("torch."), "torch_dtype": str(dtype).removeprefix("torch.")} | extra
    (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    save_weights(directory / WEIGHTS, theirs, metadata={"format": "pt"})
