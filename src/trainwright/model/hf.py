"""Hugging Face directories: read and written with safetensors, no transformers needed."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from trainwright.core.errors import DataError, RecipeError
from trainwright.core.registry import is_reference
from trainwright.core.spelling import did_you_mean
from trainwright.model.weights import load_weights, save_weights
from trainwright.spec.families.family import FAMILY
from trainwright.spec.model import FAMILIES, PLANNED_FAMILIES, ModelSpec

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def family_module(family: str, *, where: str) -> ModuleType:
    """The module of a family: ``from_config``, ``to_config``, ``from_hf``, ``to_hf``.

    Args:
        family: a ``model_type``, or ``package.module:name`` of a plug-in.
        where: what names it, for the error line.

    Raises:
        RecipeError: there is no such family, or it has no form in Hugging Face's libraries.
    """
    if family in FAMILIES or is_reference(family):
        module = FAMILY.load(family).huggingface
        if module is None:
            raise RecipeError("this family has no Hugging Face form", where=where, seen=repr(family))
        return importlib.import_module(module)
    what = "this model_type can be planned, not trained" if family in PLANNED_FAMILIES else "unknown model_type"
    raise RecipeError(
        what,
        where=where,
        seen=repr(family),
        expected=f"one of {', '.join(FAMILIES)}",
        fix=did_you_mean(family, list(FAMILIES)),
    )


def read_spec(directory: Path) -> ModelSpec:
    """The shape of the model in a Hugging Face directory.

    Raises:
        DataError: there is no readable ``config.json``.
        RecipeError: it describes something we do not compute.
    """
    path = directory / "config.json"
    config = _read_json(path)
    spec: ModelSpec = family_module(str(config.get("model_type")), where=str(path)).from_config(config, where=str(path))
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
        ours: dict[str, Tensor] = family_module(spec.family, where=str(directory)).from_hf(weights, spec)
    except KeyError as error:
        raise DataError("a weight is missing", where=directory, expected=str(error.args[0])) from error
    return {name: weight.to(torch.float32) for name, weight in ours.items()}


def _weight_files(directory: Path) -> list[Path]:
    if (directory / INDEX).is_file():
        names = _read_json(directory / INDEX)["weight_map"].values()
        return [directory / name for name in sorted(set(names))]
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    raise DataError("no weights here", where=directory, expected=f"{WEIGHTS} or {INDEX}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError("no such file", where=path, expected="a Hugging Face model directory") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError("cannot read JSON", where=path, seen=str(error)) from error
    if not isinstance(value, dict):
        raise DataError("cannot read JSON", where=path, seen=type(value).__name__, expected="an object")
    return value


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
    family = family_module(spec.family, where=str(directory))
    try:
        config = family.to_config(spec)
    except ValueError as error:
        raise RecipeError("this shape cannot be exported", where="model", seen=str(error)) from error
    theirs = {name: weight.to(dtype) for name, weight in family.to_hf(weights, spec).items()}
    config |= {"dtype": str(dtype).removeprefix("torch."), "torch_dtype": str(dtype).removeprefix("torch.")} | extra
    (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    save_weights(directory / WEIGHTS, theirs, metadata={"format": "pt"})
