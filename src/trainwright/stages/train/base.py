"""The weights that a training begins with, where another training made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from trainwright.artifact.model_folder import TARGET_SCALE, TOKENIZER, read_target_scale
from trainwright.core.errors import DataError, RecipeError, TrainingError
from trainwright.core.paths import read_object
from trainwright.core.records import from_json
from trainwright.model.bundle import check_tokens, load_network, read_stored
from trainwright.model.conventions import read_tokenizer
from trainwright.model.network import Network
from trainwright.spec.parts.targets import TargetScale
from trainwright.spec.recipe import Recipe

_CPU, _META = torch.device("cpu"), torch.device("meta")


def begin_with(
    network: Network, recipe: Recipe, tokenizer: Path, base: Path
) -> tuple[Iterable[tuple[str, Tensor]], str | None]:
    """Returns whole weights for a network, those in ``base``, and what it has a new head for, if it has one.

    Where ``base`` was made for another task or tells other labels, its embedding and blocks are kept, and the head that
    this task needs is initialised from the recipe's seed. A head that tells numbers tells the same in another scale.
    Each weight is read and checked when its turn comes.

    Raises:
        RecipeError: those weights belong to another shape or another tokenizer.
        DataError: they cannot be read, or, of one whose turn comes, it is not finite.
    """
    source = load_network(base, device=_META)
    weights = _finite(read_stored(base, source.spec, device=_CPU), base)
    where = "data.tokenizer" if recipe.model.init_from is None else "model.init_from"
    if not network.spec.sees_images:
        check_tokens(read_tokenizer(base / TOKENIZER), tokenizer, base=base, where=where)
    for problem in recipe.model.differences(network.spec, source.spec):
        raise problem
    if source.spec.has_head_of(network.spec):
        check_places(network, source)
        return _told_as_before(weights, network, recipe, base, tokenizer.parent), None
    return body_of(network, source, weights, seed=recipe.seed), new_head(network, source)


def _finite(weights: Mapping[str, Tensor], base: Path) -> Iterator[tuple[str, Tensor]]:
    for name, weight in weights.items():
        if not weight.isfinite().all():
            fix = "train it again with lower rates, or begin with another one"
            raise DataError("a weight of the base is not finite", where=base, seen=name, fix=fix)
        yield name, weight


def _told_as_before(
    weights: Iterable[tuple[str, Tensor]], network: Network, recipe: Recipe, base: Path, dataset: Path
) -> Iterable[tuple[str, Tensor]]:
    """Lets a head that tells numbers in its base's scale tell the same ones in the dataset's, as far as it has a bias.

    Raises:
        RecipeError: adapters would leave the head as it is.
    """
    before = _scale_of(base)
    if before is None or not (dataset / TARGET_SCALE).is_file():
        return weights
    now = read_target_scale(dataset)
    if before == now:
        return weights
    if recipe.train.method.adapts:
        raise RecipeError(
            "the base tells numbers in another scale, and adapters leave its head as it is",
            where="train.method.name",
            seen=f"mean {before.mean:g} and deviation {before.std:g}",
            expected=f"mean {now.mean:g} and deviation {now.std:g}, the dataset's",
            fix="write name=full",
        )
    head, both = network.head_name(), network.head_names()
    return _in_scale(weights, {name: name == head for name in both}, before, now)


def _in_scale(
    weights: Iterable[tuple[str, Tensor]], head: Mapping[str, bool], before: TargetScale, now: TargetScale
) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights, those of the head in another scale; ``head``: whether each of its names is the matrix."""
    for name, weight in weights:
        if name not in head:
            yield name, weight
            continue
        shift = 0.0 if head[name] else (before.mean - now.mean) / now.std
        yield name, weight.float().mul(before.std / now.std).add_(shift)


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


def body_of(
    network: Network, base: Network, weights: Iterable[tuple[str, Tensor]], *, seed: int
) -> Iterator[tuple[str, Tensor]]:
    """Returns all weights of the base but its head's, and first ones of what the network does not take from it.

    What the network has is asked here: when values are wanted, some of it may be on other ranks.
    """
    fresh, taken = fresh_names(network, base), dict(network.stored()).keys() - base.head_names()
    first = ((name, value) for name, value in network.initial(seed) if name in fresh)
    return chain(first, ((name, weight) for name, weight in weights if name in taken))


def new_head(network: Network, base: Network) -> str | None:
    """Returns what the head is for that a network does not take from a base; None where it has none."""
    classes, told = network.spec.classes, base.spec.labels
    if not network.head_names() or not classes:
        return None if not network.head_names() else "the vocabulary"
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


def check_places(network: Network, base: Network) -> None:
    """Compares the names and shapes of what two networks store.

    Raises:
        TrainingError: a name or a shape does not match; names it.
    """
    mine, theirs = dict(network.stored()), dict(base.stored())
    odd = sorted(mine.keys() ^ theirs.keys())
    if odd:
        raise TrainingError("the weights do not belong to this model", seen=f"{odd[0]!r} on one side only")
    for name, parameter in mine.items():
        if parameter.shape != theirs[name].shape:
            raise TrainingError(
                "the weight {name!r} does not belong to this model",
                seen=str(tuple(theirs[name].shape)),
                expected=str(tuple(parameter.shape)),
                name=name,
            )
