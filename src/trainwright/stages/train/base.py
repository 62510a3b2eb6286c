"""The weights that a training begins with, where another training made them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from trainwright.artifact.model_folder import TARGET_SCALE, TOKENIZER, read_target_scale
from trainwright.core.errors import DataError, RecipeError, TrainingError
from trainwright.core.paths import read_object
from trainwright.core.records import from_json
from trainwright.model.bundle import check_tokens, load_network
from trainwright.model.conventions import read_tokenizer
from trainwright.model.network import Network
from trainwright.spec.parts.targets import TargetScale
from trainwright.spec.recipe import Recipe


def begin_with(network: Network, recipe: Recipe, tokenizer: Path, base: Path) -> str | None:
    """Fills a network with the weights in ``base``; returns what it has a new head for, if it has one.

    Where ``base`` was made for another task or tells other labels, its embedding and blocks are kept, and the head that
    this task needs is initialised from the recipe's seed. A head that tells numbers tells the same in another scale.

    Raises:
        RecipeError: those weights belong to another shape or another tokenizer.
        DataError: they cannot be read, or one of them is not finite.
    """
    spec = network.spec
    source = load_network(base)
    where = "data.tokenizer" if recipe.model.init_from is None else "model.init_from"
    if not spec.sees_images:
        check_tokens(read_tokenizer(base / TOKENIZER), tokenizer, base=base, where=where)
    for problem in recipe.model.differences(spec, source.spec):
        raise problem
    for name, weight in source.stored():
        if not weight.isfinite().all():
            fix = "train it again with lower rates, or begin with another one"
            raise DataError("a weight of the base is not finite", where=base, seen=name, fix=fix)
    if source.spec.has_head_of(spec):
        copy_weights(network, dict(source.stored()))
        _tell_as_before(network, recipe, base, tokenizer.parent)
        return None
    network.initialise(recipe.seed)
    return take_body(network, source)


@torch.no_grad()
def _tell_as_before(network: Network, recipe: Recipe, base: Path, dataset: Path) -> None:
    """Lets a head that tells numbers in its base's scale tell the same ones in the dataset's, as far as it has a bias.

    Raises:
        RecipeError: adapters would leave the head as it is.
    """
    before = _scale_of(base)
    if before is None or not (dataset / TARGET_SCALE).is_file():
        return
    now = read_target_scale(dataset)
    if before == now:
        return
    if recipe.train.method.adapts:
        raise RecipeError(
            "the base tells numbers in another scale, and adapters leave its head as it is",
            where="train.method.name",
            seen=f"mean {before.mean:g} and deviation {before.std:g}",
            expected=f"mean {now.mean:g} and deviation {now.std:g}, the dataset's",
            fix="write name=full",
        )
    network.head_weight.mul_(before.std / now.std)
    if network.logit_bias is not None:
        network.logit_bias.mul_(before.std / now.std).add_((before.mean - now.mean) / now.std)


def _scale_of(base: Path) -> TargetScale | None:
    """Returns in what a base tells numbers; in Hugging Face form in their own unit, unless we have exported it."""
    if (base / TARGET_SCALE).is_file():
        return read_target_scale(base)
    config = base / "config.json"
    told = read_object(config) if config.is_file() else {}
    if told.get("problem_type") != "regression":
        return None
    scale = {"mean": told.get("target_mean", 0.0), "std": told.get("target_std", 1.0)}
    return from_json(TargetScale, scale, where=str(config))


def take_body(network: Network, base: Network) -> str | None:
    """Copies all weights of the base but its head's; returns what the network's own head is for, if it has one."""
    body, parameters = dict(base.stored()), dict(network.stored())
    other, own = base.head_names(), network.head_names()
    taken = {name: weight for name, weight in body.items() if name not in other and name in parameters}
    fresh = {name: parameters[name].detach() for name in fresh_names(network, base)}
    copy_weights(network, fresh | taken)
    classes, told = network.spec.classes, base.spec.labels
    if not own or not classes:
        return None if not own else "the vocabulary"
    names = "" if told is None else f" ({', '.join(told)})"
    return ("one number" if classes == 1 else f"{classes} labels") + (
        f"; the base has one for other labels{names}" if base.spec.classes else ""
    )


def fresh_names(network: Network, base: Network) -> frozenset[str]:
    """Returns the names of what a network does not take from a base: its head, where that is another, and what is new.

    Of what stands between blocks and head a base may have more or less: the pooler of an encoder.
    """
    if base.spec.has_head_of(network.spec):
        return frozenset()
    body = {name for name, _ in base.stored()}
    return network.head_names() | {name for name, _ in network.stored() if name not in body}


def copy_weights(model: Network, weights: Mapping[str, Tensor]) -> None:
    """Copy whole weights into the model by name.

    Raises:
        TrainingError: a name or a shape does not match; names it.
    """
    parameters = dict(model.stored())
    odd = sorted(parameters.keys() ^ weights.keys())
    if odd:
        raise TrainingError("the weights do not belong to this model", seen=f"{odd[0]!r} on one side only")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise TrainingError(
                    "the weight {name!r} does not belong to this model",
                    seen=str(tuple(weights[name].shape)),
                    expected=str(tuple(parameter.shape)),
                    name=name,
                )
            parameter.copy_(weights[name])
