"""Networks of another width than their rates are of (muP): weights and rates, by ``spec.sections.weights.width``."""

from __future__ import annotations

import torch

from trainwright.model.network import Network


@torch.no_grad()
def follow_width(network: Network, ratio: float, *, first: bool) -> None:
    """Gives the matrices inside a whole network's blocks the first weights and the rate of its width.

    Args:
        network: whose weights have values.
        ratio: how many times as wide it is as the network that rates and first weights are of.
        first: its weights are the first ones, of the variance that the base's have; no training has moved them.
    """
    network.width_ratio = ratio
    if first and ratio != 1:
        for matrix in network.matrices().values():
            matrix.mul_(ratio**-0.5)
