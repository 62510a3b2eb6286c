"""Losses of one answer preferred over another, from what a network says of the tokens of both.

Shape legend: ``batch`` (sequences), ``seq`` (tokens of one), ``rows`` (both as one), ``width``, ``pairs``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.model.network import Network

LIKELIEST = -1e-6
"""The largest mean log-probability whose odds are computed: those of a certain answer are infinite."""


def loss_of_tokens(
    network: Network,
    hidden: Float[Tensor, "rows width"],
    targets: Int[Tensor, " rows"],
    judge: Callable[[Float[Tensor, " rows"]], Float[Tensor, ""]],
) -> Float[Tensor, ""]:
    """Returns a loss that is any function of tokens' cross-entropies, with its gradient; no full logits are kept.

    By the chain rule its gradient is that of the cross-entropies' sum, each multiplied by what ``judge`` changes with
    it. So logits are made twice, a chunk at a time: for the cross-entropies, and again with their gradient.

    Args:
        network: with its head.
        hidden: of the network.
        targets: of the head; ``IGNORE`` has the cross-entropy 0.
        judge: the loss, from the cross-entropies in nats.
    """
    with torch.no_grad():
        costs = network.token_losses(hidden, targets)
    if not torch.is_grad_enabled():
        return judge(costs)
    costs.requires_grad_()
    loss = judge(costs)
    (factors,) = torch.autograd.grad(loss, costs)
    total, _ = network.head_loss(hidden, targets, factors=factors)
    return total + (loss - total).detach()


def by_answer(
    values: Float[Tensor, "batch seq"], documents: Int[Tensor, "batch seq"]
) -> Float[Tensor, "batch places 2"]:
    """Returns the sum of tokens' values over each chat of a sequence, two and two: the better answer first.

    There are as many places as there can be pairs; those behind the last one hold no pair.
    """
    rows, tokens = values.shape
    places = tokens // 2 + 1
    return values.new_zeros(rows, 2 * places).scatter_add(1, documents, values).view(rows, places, 2)


def dpo(ratios: Float[Tensor, "*pairs 2"], *, beta: float, label_smoothing: float = 0.0) -> Float[Tensor, "*pairs"]:
    """Returns the loss of direct preference optimisation of each pair, in nats.

    ``-log sigmoid(beta (r_chosen - r_rejected))`` (Rafailov et al., 2023, arXiv 2305.18290, equation 7). With
    ``label_smoothing`` a preference is taken to be the other way round with that probability (conservative DPO:
    Mitchell, "A note on DPO with noisy preferences", 2023).

    Args:
        ratios: log-probability of an answer, less that of the reference; the better answer first.
        beta: how dear it is to leave the reference.
        label_smoothing: share of wrong preferences, below a half.
    """
    margin = beta * (ratios[..., 0] - ratios[..., 1])
    return -(1 - label_smoothing) * F.logsigmoid(margin) - label_smoothing * F.logsigmoid(-margin)


def orpo(means: Float[Tensor, "*pairs 2"], *, beta: float) -> Float[Tensor, "*pairs"]:
    """Returns the loss of odds ratio preference optimisation of each pair, in nats.

    The cross-entropy per token of the better answer, and ``beta`` times ``-log sigmoid(log odds(chosen) - log
    odds(rejected))``, where odds are p / (1 - p) of the geometric mean p of an answer's token probabilities
    (Hong et al., 2024, arXiv 2403.07691, equations 3, 6 and 7; their lambda is ``beta`` here, as in TRL).

    Args:
        means: log-probability per token of an answer; the better answer first.
        beta: weight of the odds ratio.
    """
    below = means.clamp_max(LIKELIEST)
    odds = below - torch.log(-torch.expm1(below))
    return -means[..., 0] - beta * F.logsigmoid(odds[..., 0] - odds[..., 1])
