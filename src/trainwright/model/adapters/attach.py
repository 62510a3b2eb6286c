"""Adapters of a whole network: put beside its matrices, filled, chosen, merged."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainwright.core.errors import RecipeError
from trainwright.model.adapters.linear import AdaptedLinear, Factors
from trainwright.model.dropout import Draw, Dropouts
from trainwright.model.layers import Linear
from trainwright.model.network import Network
from trainwright.spec.parts.adaptation import DEFAULT, LowRank
from trainwright.spec.parts.dropout import Dropout

TARGETS = "train.method.targets"


def attach(
    network: Network, modules: Mapping[str, LowRank], *, magnitude: bool = False, name: str = DEFAULT
) -> dict[str, Factors]:
    """Freezes a network's own weights and puts adapters without values beside some; they are the ones that act.

    Args:
        network: whole, with its base's weights.
        modules: names of its linear layers, with what stands beside each.
        magnitude: whether rows' lengths are trained too (DoRA).
        name: of the adapters; others that are there stay, and act no more.

    Returns:
        The factors, by module.

    Raises:
        RecipeError: the network has no linear layer of a name.
    """
    known = {path for path, module in network.named_modules() if isinstance(module, Linear)}
    for path in modules:
        if path not in known:
            raise RecipeError("this network has no such linear layer", where=TARGETS, seen=path)
    for module in network.modules():
        for own in module.parameters(recurse=False):
            own.requires_grad_(False)
        if isinstance(module, AdaptedLinear):
            module.active = ()
    made = {path: _adapted(network, path).add(name, how, magnitude=magnitude) for path, how in modules.items()}
    use(network, [name])
    return made


@torch.no_grad()
def fill(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Gives adapters that were attached their values, by the names of the network's parameters."""
    parameters = dict(network.named_parameters())
    for name, values in tensors.items():
        parameters[name].copy_(values)


def _adapted(network: Network, path: str) -> AdaptedLinear:
    module = network.get_submodule(path)
    if not isinstance(module, AdaptedLinear):
        assert isinstance(module, Linear)
        module = AdaptedLinear(module)
        parent, _, leaf = path.rpartition(".")
        setattr(network.get_submodule(parent), leaf, module)
    return module


def drop_inputs(network: Network, rate: float) -> None:
    """Lets training passes drop elements of what the adapters of a network multiply, with probability ``rate``.

    From then on such a pass asks for its sequences' keys (``samples``).
    """
    if network.dropouts is None:
        network.dropouts = Dropouts(Dropout(), network.spec.layers)
    linear = [module for module in network.modules() if isinstance(module, Linear)]
    for number, layer in enumerate(linear):
        for factors in layer.adapters.values() if isinstance(layer, AdaptedLinear) else ():
            assert isinstance(factors, Factors)
            factors.drops = number, rate
    for block in network.blocks:
        block.register_forward_pre_hook(_telling([layer for _, layer in adapted_layers(block)]), with_kwargs=True)


def _telling(layers: Sequence[AdaptedLinear]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    """Returns a hook that tells a block's adapters what its pass drops; a pass that is made again says so again."""

    def tell(block: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        draw = next((each for each in (*given, *named.values()) if isinstance(each, Draw)), None)
        for layer in layers:
            layer.draw = draw

    return tell


def use(network: nn.Module, names: Sequence[str]) -> None:
    """Lets the adapters of these names act, and no others.

    Raises:
        ValueError: no layer has adapters of a name, or they are merged into the weights.
    """
    layers = [layer for _, layer in adapted_layers(network)]
    for name in names:
        if not any(name in layer.adapters for layer in layers):
            raise ValueError(f"there is no adapter {name!r}")
    if any(layer.merged for layer in layers):
        raise ValueError("adapters are merged into the weights: unmerge them first")
    for layer in layers:
        layer.active = tuple(name for name in names if name in layer.adapters)


@contextmanager
def switched_off(network: nn.Module) -> Iterator[None]:
    """Lets no adapter act within: the network computes what its base does, to the bit."""
    acting = [(layer, layer.active) for _, layer in adapted_layers(network)]
    for layer, _ in acting:
        layer.active = ()
    try:
        yield
    finally:
        for layer, names in acting:
            layer.active = names


def merge(network: nn.Module) -> None:
    """Puts the acting adapters into the weights, which are kept for ``unmerge``."""
    for _, layer in adapted_layers(network):
        layer.merge()


def unmerge(network: nn.Module) -> None:
    """Puts back the very bits of the weights before ``merge``."""
    for _, layer in adapted_layers(network):
        layer.unmerge()


def adapted_layers(network: nn.Module) -> Iterator[tuple[str, AdaptedLinear]]:
    """Yields the layers with adapters beside them, by name."""
    for path, module in network.named_modules():
        if isinstance(module, AdaptedLinear):
            yield path, module


@torch.no_grad()
def initialise(network: nn.Module, seed: int, *, name: str = DEFAULT) -> None:
    """Fills adapters so that the network computes what its base does: ``b`` is zero, magnitudes are rows' lengths.

    ``a`` is uniform within 1 / sqrt(inputs), PEFT's default (Kaiming's for a = sqrt(5)), of a generator that the seed
    and the layer's name key: no value depends on which other layers have adapters.
    """
    for path, layer in adapted_layers(network):
        if name not in layer.adapters:
            continue
        factors = layer.adapters[name]
        assert isinstance(factors, Factors)
        key = hashlib.sha256(f"{seed}:{path}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "little") >> 1)
        bound = 1 / math.sqrt(factors.a.shape[1])
        values = torch.rand(factors.a.shape, generator=generator, dtype=torch.float32)
        factors.a.copy_(values.mul_(2 * bound).sub_(bound))
        factors.b.zero_()
        if factors.magnitude is not None:
            factors.magnitude.copy_(factors.lengths(layer.weight))
