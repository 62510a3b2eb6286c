"""Hugging Face directories: read and written with safetensors, no transformers needed."""

from __future__ import annotations

import json
from collections import UserDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.artifact.model_folder import BUFFERS, WEIGHTS, weight_files
from trainwright.core.errors import DataError, in_one_line
from trainwright.model.weights import load_weights, save_weights
from trainwright.spec.families.family import huggingface_config, huggingface_form
from trainwright.spec.model import ModelSpec

HEAD = "lm_head.weight"


class _Asked(UserDict[str, Tensor]):
    """Weights by name, and the ``names`` that were asked for."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.names.add(name)
        return self.data[name]


def read_weights(directory: Path, spec: ModelSpec, *, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Returns the weights of a Hugging Face directory under our names, in the precision that they are stored in.

    Args:
        directory: where they are.
        spec: the shape.
        device: where to put them; on ``meta`` the files' headers alone are read.

    Raises:
        DataError: no safetensors files, a damaged one, or a weight that is missing, misshapen or has no place in the
            shape; names it.
    """
    weights: dict[str, Tensor] = {}
    for path in weight_files(directory):
        weights |= load_weights(path, device=device)
    asked, form = _Asked(weights), huggingface_form(spec.family, where=str(directory))
    try:
        ours: dict[str, Tensor] = form.from_hf(asked, spec)
    except KeyError as error:
        raise DataError("a weight is missing", where=directory, expected=str(error.args[0])) from error
    except (ValueError, RuntimeError) as error:  # torch cannot cut one as this family's are cut
        raise DataError("the weights do not fit this model", where=directory, seen=in_one_line(error)) from error
    spare = getattr(form, "SPARE", None)
    unknown = {name for name in weights.keys() - asked.names if not BUFFERS.search(name)}
    unknown -= set() if spare is None else {name for name in unknown if spare.search(name)}
    if spec.tied and unknown == {HEAD} and any(_equal(weights[HEAD], weight) for weight in ours.values()):
        unknown = set()
    if unknown:
        raise DataError("a weight has no place in this model", where=directory, seen=min(unknown))
    return ours


def _equal(one: Tensor, other: Tensor) -> bool:
    """Returns whether two tensors are the same; without values they are taken to be."""
    return one.shape == other.shape and (one.is_meta or torch.equal(one, other))


def write(
    directory: Path, spec: ModelSpec, weights: Mapping[str, Tensor], *, dtype: torch.dtype, extra: dict[str, Any]
) -> None:
    """Write ``config.json`` and ``model.safetensors``.

    Args:
        directory: where; it exists.
        spec: the shape.
        weights: our names to weights.
        dtype: stored precision; what the family keeps ``EXACT`` keeps its own.
        extra: further configuration keys, such as token ids.

    Raises:
        RecipeError: the shape has no form in that family of Hugging Face.
        MachineError: the disk is full, or the place cannot be written.
    """
    config = huggingface_config(spec, where=str(directory))
    form = huggingface_form(spec.family, where=str(directory))
    exact: tuple[str, ...] = getattr(form, "EXACT", ())
    theirs = {
        name: weight if exact and name.endswith(exact) else weight.to(dtype)
        for name, weight in form.to_hf(weights, spec).items()
    }
    config |= {"dtype": str(dtype).removeprefix("torch."), "torch_dtype": str(dtype).removeprefix("torch.")} | extra
    (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    save_weights(directory / WEIGHTS, theirs, metadata={"format": "pt"})
