"""``Beginning``: a network and what its weights begin with, which come one at a time once it is shared.

No process ever has all weights in memory, but those of a base as its files are mapped: what a rank keeps of a tensor is
copied out of the whole one, which then goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from trainwright.core.errors import TrainingError
from trainwright.core.registry import load
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.weights.method import WHOLE
from trainwright.stages.train.settings import Settings
from trainwright.stages.train.world import ALONE, World

BASE = "trainwright.stages.train.base:begin_with"
WIDTH = "trainwright.model.parts.width:follow_width"
METHOD = "trainwright.stages.train.weights.method:apply"
CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What a training begins with.

    Attributes:
        network: whole; its parameters have shapes and no memory, unless adapters stand beside them already.
        values: what ``fill`` puts into them, by name.
        new_head: what it has a new head for, if it has one.
    """

    network: Network
    values: Iterable[tuple[str, Tensor]]
    new_head: str | None

    def fill(self, device: torch.device, world: World = ALONE) -> Network:
        """Gives the network, or what is left of it here once it is shared, memory on a device and its values.

        Raises:
            DataError: a weight of the base cannot be read, or is not finite.
            TrainingError: a parameter has no value, and would begin with whatever its memory holds; names it.
        """
        empty = {name for name, parameter in self.network.named_parameters() if parameter.is_meta}
        world.give_memory(self.network, device)
        left = empty - fill(self.network, self.values, world)
        if left:
            raise TrainingError("a parameter has no first value", where="model", seen=min(left))
        return self.network


def begin(recipe: Recipe, settings: Settings, tokenizer: Path, *, base: Path | None) -> Beginning:
    """Returns a network that begins with the weights in ``base``, or random ones.

    Beside adapters, which are made from the weights that they stand beside, these are there at once, on the device.

    Raises:
        TrainwrightError: as ``base.begin_with``.
    """
    with without_memory():
        network = build_network(
            settings.model,
            dtype=settings.dtype,
            recompute=settings.recompute,
            recomputed=settings.recomputed,
            kernels=recipe.train.exec.kernels,
        )
    values: Iterable[tuple[str, Tensor]]
    if base is None:
        values, new_head = network.initial(recipe.seed), None
    else:
        values, new_head = load(BASE, kind="base")(network, recipe, tokenizer, base)
    if recipe.model.mup is not None:
        values = load(WIDTH, kind="width")(network, recipe.model.width_ratio, values, first=base is None)
    begun = Beginning(network=network, values=values, new_head=new_head)
    if recipe.train.method == WHOLE:
        return begun
    load(METHOD, kind="method")(begun.fill(CPU), recipe, base)
    return Beginning(network=network.to(settings.device), values=(), new_head=new_head)


@contextmanager
def without_memory() -> Iterator[None]:
    """Parameters that modules register within have shapes and no memory (torch's device ``meta``); buffers have both.

    Each is emptied as it is registered, so that a network of any size can be built.
    """

    def emptied(module: nn.Module, name: str, parameter: nn.Parameter | None) -> Any:  # torch's types say None alone
        if parameter is None or parameter.is_meta:  # the second place of one that two modules share
            return None
        return nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad)

    hook = register_module_parameter_registration_hook(emptied)
    try:
        yield
    finally:
        hook.remove()


@torch.no_grad()
def fill(network: Network, values: Iterable[tuple[str, Tensor]], world: World = ALONE) -> set[str]:
    """Copies what this process keeps of each whole value into the network, in its dtype; returns the names of these.

    Args:
        network: shared or whole; of a pipeline some parameters are others' alone.
        values: by name, of parameters and of what is stored beside them.
        world: says which part of each is here.
    """
    stored, filled = dict(network.stored()), set[str]()
    for name, whole in values:
        if name not in stored:
            continue
        _, begins = world.placement(name, stored[name])
        (part,) = world.local([stored[name]])
        part.copy_(whole[tuple(slice(at, at + size) for at, size in zip(begins, part.shape, strict=True))])
        filled.add(name)
    return filled
