"""``build_network``: from a ``ModelSpec`` to the module that computes it."""

from __future__ import annotations

import torch

from trainwright.core.errors import RecipeError
from trainwright.core.plug_in import blaming
from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.spec.families.family import DECODER, FAMILY
from trainwright.spec.model import FAMILIES, ModelSpec
from trainwright.spec.workload import DEFAULT_KERNELS, KernelChoice, Recompute


def build_network(
    spec: ModelSpec,
    *,
    dtype: torch.dtype = torch.float32,
    recompute: Recompute = "none",
    recomputed: int | None = None,
    kernels: KernelChoice = DEFAULT_KERNELS,
    where: str = "model",
) -> Network:
    """Returns the network of a shape; its parameters have memory and no values yet.

    Args:
        spec: the shape.
        dtype: of activations and matrix products.
        recompute: what of each block is computed again in the backward pass.
        recomputed: how many blocks that is for; None: all.
        kernels: implementations of attention and loss.
        where: the recipe's key or the file that the shape comes from, for the error line.

    Raises:
        RecipeError: no such network exists, or it is not built here; names the fields.
    """
    problems = spec.problems()
    if problems:
        raise RecipeError("this is no possible model", where=where, seen="; ".join(problems))
    # A shape of a family that is only planned is built where the decoder computes all of it.
    reference = FAMILY.load(spec.family).network if FAMILY.knows(spec.family) else DECODER
    network_class = load(reference, kind="network")
    try:
        with blaming(spec.family, where=where):
            network: Network = network_class(spec, dtype=dtype, recompute=recompute)
    except RecipeError:
        raise
    except ValueError as error:
        raise RecipeError(
            "this model can be planned, not built",
            where=where,
            seen=str(error),
            fix=f"use a family that is built here: {', '.join(FAMILIES)}",
        ) from error
    if recomputed is not None:
        try:
            network.recompute_in(recomputed)
        except ValueError as error:
            where, seen = "train.recompute_budget", str(error)
            raise RecipeError("this network has no such choice", where=where, seen=seen, fix="leave it out") from error
    try:
        network.use(kernels)
    except ValueError as error:
        key, seen = "train.exec.attention", str(error)
        raise RecipeError("this network has no such kernel", where=key, seen=seen, fix="leave it out") from error
    return network
