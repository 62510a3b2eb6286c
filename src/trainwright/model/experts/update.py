"""What mixtures do around an update: their loads are counted over its passes, and biases follow them.

Shape legend: ``layers`` (of the whole network), ``experts``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.model.experts.balance import Share, moved_bias
from trainwright.model.experts.mixture import Mixture
from trainwright.model.network import Network

MEAN, WORST = "train/expert_load", "train/expert_load_max"
"""Metrics: the fullest expert's load over the mean, the mean over layers and the largest of all."""
OF_RANKS = "train/expert_rank_load"
"""The same of the ranks that experts are divided among, the mean over layers: what plans assume and others wait for."""


def mixtures(network: Network) -> Mapping[int, Mixture]:
    """Returns the mixtures here by the numbers of their layers."""
    blocks = network.blocks.named_children()
    return {int(name): block.ffn for name, block in blocks if isinstance(block.ffn, Mixture)}


def begun(network: Network, of_sequence: Float[Tensor, ""]) -> Share:
    """Sets all loads to zero; returns what passes are told."""
    for mixture in mixtures(network).values():
        mixture.load.zero_()
    return Share(of_sequence)


def of_first(share: Share, sequences: int) -> Share:
    """Returns what a pass is told of whose sequences the first ones alone belong to the batch."""
    return replace(share, sequences=sequences)


@torch.no_grad()
def ended(network: Network, add_up: Callable[[Tensor], Tensor], *, made: bool) -> Mapping[str, Tensor]:
    """Moves experts' biases by the load of the whole update, the same on all ranks; returns the metrics above.

    Those of frozen routers stay.

    Args:
        network: after the optimizer.
        add_up: adds up a tensor over all ranks that saw other sequences or have other layers.
        made: whether there was an update; without one no bias moves.
    """
    experts, here = network.spec.experts, mixtures(network)
    assert experts is not None
    load = torch.zeros(network.spec.layers, experts.count, dtype=torch.int64, device=network.device)
    for layer, mixture in here.items():
        load[layer] = mixture.load
    load = add_up(load)
    for layer, mixture in here.items():
        correction = mixture.router.correction
        if correction is not None and made and mixture.learns_to_route:
            correction.copy_(moved_bias(correction, load[layer], experts.bias_rate))
    load = load[[layer for layer in range(network.spec.layers) if network.spec.mixes(layer)]]
    uneven = _unevenness(load)
    found = {MEAN: uneven.mean(), WORST: uneven.max()}
    if network.expert_ranks == 1:
        return found
    return found | {OF_RANKS: _unevenness(load.unflatten(-1, (network.expert_ranks, -1)).sum(-1)).mean()}


def _unevenness(load: Int[Tensor, "layers experts"]) -> Float[Tensor, " layers"]:
    """Returns of each layer the load of its fullest expert over the mean; 1 where nothing was counted."""
    counted = load.double()
    return torch.where(load.any(-1), counted.amax(-1) / counted.mean(-1).clamp_min(1e-12), 1.0)
