"""``train.method``: adapters beside the weights of a base."""

from __future__ import annotations

from pathlib import Path

import torch

from trainwright.artifact.model_folder import read_shape
from trainwright.artifact.weight_headers import model_digest
from trainwright.core.errors import RecipeError
from trainwright.model.adapters.attach import attach, drop_inputs, initialise
from trainwright.model.adapters.quantised import quantise
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.planner.counts.adapters import placed
from trainwright.spec.parts.adaptation import Adaptation, BaseModel, LowRank
from trainwright.spec.recipe import Recipe
from trainwright.stages.train.base import fresh_names


def apply(network: Network, recipe: Recipe, base: Path | None) -> None:
    """Freezes a base's weights, and puts the adapters of a recipe beside them; what the base lacks is trained whole.

    Frozen weights are kept in the dtype that they enter products in: the same bits there, in half the bytes. What has
    one dimension stays fp32: the loss adds the head's bias so. With ``frozen: nf4`` the linear layers of the blocks are
    packed into four bits first, on the processor, so that every device computes with the same base.

    Args:
        network: whole, with its base's weights.
        recipe: says the method.
        base: the folder that the weights came from.

    Raises:
        RecipeError: there is no base, or the network lacks a layer.
        DataError: the base cannot be read.
        MissingPackage: weights are to be packed, and bitsandbytes is not installed.
    """
    method = recipe.train.method
    if base is None:
        raise without_base()
    how = LowRank(rank=method.rank, scale=method.scale)
    modules = dict.fromkeys(placed(network.spec, method.targets), how)
    magnitude = method.name == "dora"
    if method.frozen == "nf4":
        quantise(network)
    with torch.device("meta"):
        fresh = fresh_names(network, build_network(read_shape(base), where=str(base)))
    factors = attach(network, modules, magnitude=magnitude)
    for name, parameter in network.named_parameters():
        if name in fresh:
            parameter.requires_grad_()
        elif not parameter.requires_grad and parameter.ndim > 1:
            parameter.data = parameter.data.to(network.compute_dtype)
    assert len(factors) == len(modules)
    initialise(network, recipe.seed)
    if method.dropout:
        drop_inputs(network, method.dropout)
    source = BaseModel(path=str(base.resolve()), digest=model_digest(base))
    network.adaptation = Adaptation(modules=modules, base=source, magnitude=magnitude, frozen=method.frozen)


def without_base() -> RecipeError:
    """Returns the error of adapters that stand beside nothing."""
    return RecipeError(
        "adapters are trained beside the weights of a base, and there is none",
        where="train.method.name",
        fix="set model.init_from, or let the step go on from another one",
    )
