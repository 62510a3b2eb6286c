"""A trained model that is adapters, and a base elsewhere: ``adapters.json`` beside the adapters' weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from trainwright.artifact.model_folder import read_adaptation, read_shape
from trainwright.artifact.weight_headers import model_digest
from trainwright.core.errors import DataError
from trainwright.model.adapters.linear import Factors
from trainwright.model.adapters.quantised import quantised_layers, rounded
from trainwright.model.build import build_network
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.adaptation import DEFAULT, Adaptation, LowRank

Read = Callable[..., dict[str, Tensor]]
"""Reads the weights of a folder with a model: ``model.bundle.read_stored``."""


def whole_weights(
    directory: Path, stored: Mapping[str, Tensor], read: Read, *, device: torch.device | str
) -> dict[str, Tensor]:
    """Returns the weights of a trained model: its base's with its adapters merged, and what else was trained.

    Where the base was kept in nf4, its blocks' matrices are what nf4 made of them, adapted or not.

    Args:
        directory: with ``adapters.json``.
        stored: its own weights.
        read: of the base's folder and shape.
        device: where to put them; on ``meta`` they have no values.

    Raises:
        DataError: the base is gone or another one now, or a weight of it or of an adapter is missing or misshapen.
    """
    adaptation = read_adaptation(directory)
    base, spec = base_of(adaptation, directory)
    weights = read(base, spec, device=device)
    if adaptation.frozen == "nf4":
        weights |= {f"{path}.weight": rounded(weights[f"{path}.weight"]) for path in quantised_layers(spec)}
    own = dict(stored)
    for path, how in adaptation.modules.items():
        name = f"{path}.weight"
        if name not in weights:
            raise DataError("the base of these adapters has no such weight", where=base, expected=name)
        factors = _factors(own, path, how, weights[name], magnitude=adaptation.magnitude, where=directory)
        weights[name] = weights[name] if weights[name].is_meta else factors.merged(weights[name].float())
    return _of_the_task(weights, spec, read_shape(directory)) | own


def _of_the_task(weights: dict[str, Tensor], base: ModelSpec, spec: ModelSpec) -> dict[str, Tensor]:
    """Returns of a base's weights those that a network has; on other tasks stand other heads."""
    if base.has_head_of(spec):
        return weights
    with torch.device("meta"):
        names = {name for name, _ in build_network(spec).stored()}
    return {name: values for name, values in weights.items() if name in names}


def base_of(adaptation: Adaptation, directory: Path) -> tuple[Path, ModelSpec]:
    """Returns the folder of a base and its shape.

    Raises:
        DataError: it is gone, or not the model that the adapters were trained beside.
    """
    base = Path(adaptation.base.path)
    if not base.is_dir():
        fix = "put the base back there"
        raise DataError("the base of these adapters is not there", where=directory, expected=str(base), fix=fix)
    found = model_digest(base)
    if found != adaptation.base.digest:
        raise DataError(
            "these adapters belong to another base",
            where=directory,
            seen=f"{base} with sha256 {found}",
            expected=f"sha256 {adaptation.base.digest}",
            fix="put back the base that they were trained beside",
        )
    return base, read_shape(base)


def _factors(
    own: dict[str, Tensor], path: str, how: LowRank, weight: Tensor, *, magnitude: bool, where: Path
) -> Factors:
    """Returns the factors of one layer, which are taken out of ``own``."""
    outputs, inputs = weight.shape
    with torch.device("meta"):
        factors = Factors(inputs, outputs, how, magnitude=magnitude)
    found = {}
    for name, parameter in factors.named_parameters():
        whole = parameter_name(path, name)
        if whole not in own:
            raise DataError("a weight is missing", where=where, expected=whole)
        found[name] = own.pop(whole)
        if found[name].shape != parameter.shape:
            seen, expected = tuple(found[name].shape), str(tuple(parameter.shape))
            raise DataError("weight {name} has another shape", where=where, seen=seen, expected=expected, name=whole)
    factors.load_state_dict(found, assign=True)
    return factors


def parameter_name(path: str, name: str, *, adapter: str = DEFAULT) -> str:
    """Returns what a network calls a tensor of an adapter beside a layer."""
    return f"{path}.adapters.{adapter}.{name}"
