"""Networks of another width than their rates are of (muP): weights and rates, by ``spec.sections.weights.width``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from trainwright.model.network import Network


def follow_width(
    network: Network, ratio: float, values: Iterable[tuple[str, Tensor]], *, first: bool
) -> Iterable[tuple[str, Tensor]]:
    """Gives the matrices inside a whole network's blocks the rate of its width; returns weights of its width.

    Args:
        network: that the values are of; its parameters need no memory.
        ratio: how many times as wide it is as the network that rates and first weights are of.
        values: what it begins with, by name.
        first: these are first weights, of the variance that the base's have; no training has moved them.
    """
    network.width_ratio = ratio
    return _narrowed(values, frozenset(network.matrices()), ratio**-0.5) if first and ratio != 1 else values


def _narrowed(
    values: Iterable[tuple[str, Tensor]], matrices: frozenset[str], factor: float
) -> Iterator[tuple[str, Tensor]]:
    for name, value in values:
        yield name, value.mul_(factor) if name in matrices else value
