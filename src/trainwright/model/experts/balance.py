"""What balances the load of experts: a loss of each sequence, a loss of large logits, a bias that follows the load.

What one sequence adds to the loss depends on that sequence alone, and is divided by the sequences of the whole batch:
so no cut of a batch into micro batches or data-parallel ranks changes a gradient. A loss over whole micro batches, as
in Switch Transformers, would change with them.

Shape legend: ``batch`` (sequences here), ``seq`` (tokens of a sequence), ``tokens`` (both), ``experts``, ``active``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from trainwright.model.experts.routing import Routing
from trainwright.spec.parts.experts import Experts


@dataclass(frozen=True, slots=True)
class Share:
    """What a pass's sequences have to do with the update that it is part of.

    Attributes:
        of_sequence: what the loss of one sequence is multiplied by in what is differentiated: 1 / (sequences of the
            whole batch), times the factor of scaled losses.
        sequences: how many of the pass's sequences belong to the batch, the first ones; None: all. Those that fill a
            micro batch up count for nothing.
    """

    of_sequence: Float[Tensor, ""]
    sequences: int | None = None


def sequence_loss(routing: Routing, experts: Experts, *, sequences: int) -> Float[Tensor, " batch"]:
    """Returns the balance loss of each sequence, and the loss of its logits, both with their weights.

    The first is equations 17 to 20 of DeepSeek-V3 (arXiv 2412.19437): of each expert the share of the sequence's
    tokens that chose it, times count / active, times its mean score, scores of a token summing to one; 1 where all
    experts are equal. For one sequence and softmax it is Switch Transformers' (arXiv 2101.03961, equation 4) with top-k
    in place of top-1. The second is the mean over tokens of the squared log of the sum of exponentiated logits
    (ST-MoE, arXiv 2202.08906, equation 5). Every token of a sequence counts, whether it has a target or not.
    """
    scores = routing.scores.unflatten(0, (sequences, -1))
    total = scores.new_zeros(sequences)
    if experts.loss_weight:
        load = loads(routing.chosen.unflatten(0, (sequences, -1)), experts.count)
        often = load.to(scores.dtype) * (experts.count / (experts.active * scores.shape[1]))
        shares = scores / scores.sum(-1, keepdim=True) if experts.scores == "sigmoid" else scores
        total = total + experts.loss_weight * (often * shares.mean(1)).sum(-1)
    if experts.z_weight:
        log_sums = routing.logits.unflatten(0, (sequences, -1)).logsumexp(-1)
        total = total + experts.z_weight * log_sums.square().mean(1)
    return total


def loads(chosen: Int[Tensor, "*batch tokens active"], count: int) -> Int[Tensor, "*batch experts"]:
    """Returns how many of these choices are for each expert; integers, so that no order of adding matters."""
    flat = chosen.flatten(-2)
    empty = flat.new_zeros(*flat.shape[:-1], count)
    return empty.scatter_add_(-1, flat, torch.ones_like(flat))


class _WithLoss(torch.autograd.Function):
    """``x`` unchanged, whose backward pass also begins that of a loss."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, losses: Tensor, shares: Tensor) -> Tensor:
        ctx.save_for_backward(shares)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (shares,) = ctx.saved_tensors
        return grads[0], shares, None


def with_loss(x: Shaped[Tensor, "*any"], losses: Float[Tensor, " batch"], share: Share) -> Shaped[Tensor, "*any"]:
    """Returns ``x``; its backward pass adds the gradient of each sequence's loss times its share of the batch.

    So a loss deep inside joins the task's without a way out of the network: what the task returns stays its own.
    """
    shares = share.of_sequence.to(losses.dtype).expand(losses.shape)
    if share.sequences is not None:
        shares = shares * (torch.arange(losses.shape[0], device=losses.device) < share.sequences)
    result: Tensor = _WithLoss.apply(x, losses, shares.contiguous())
    return result


def moved_bias(
    correction: Float[Tensor, " experts"], load: Int[Tensor, " experts"], rate: float
) -> Float[Tensor, " experts"]:
    """Returns the biases after an update: up by ``rate`` for experts below the mean load, down above it.

    Algorithm 1 of Wang et al. (2024, arXiv 2408.15664); ``load`` is the whole batch's, of all ranks.
    """
    mean = load.sum().to(correction.dtype) / load.shape[0]
    return correction + rate * torch.sign(mean - load.to(correction.dtype))
