"""Embedding and loss over a vocabulary that ranks share: each has neighbouring rows, and no rank ever all logits.

Shape legend: ``rows`` (of hidden states), ``width``, ``entries`` (of the vocabulary here).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainwright.model.losses import IGNORE, Gradients, Head, add_gradients, linear_cross_entropy
from trainwright.model.losses import Loss as SumAndWeight
from trainwright.runtime.collectives import added
from trainwright.spec.workload import LossChunk

Place = tuple[Int[Tensor, "*batch"], Bool[Tensor, "*batch"]]


def place_of(tokens: Int[Tensor, "*batch"], first: int, entries: int) -> Place:
    """Returns each token's row among those from ``first`` on, 0 where it has none here, and whether it has one."""
    here = tokens - first
    mine = (here >= 0) & (here < entries)
    return torch.where(mine, here, 0), mine


def looked_up(
    tokens: Int[Tensor, "batch seq"], table: Float[Tensor, "entries width"], first: int
) -> Float[Tensor, "batch seq width"]:
    """Returns the rows of tokens that are here, zeros for all others: over all ranks they sum to the embedding."""
    index, mine = place_of(tokens, first, table.shape[0])
    return F.embedding(index, table) * mine.unsqueeze(-1)


def head_loss(
    hidden: Float[Tensor, "rows width"],
    weight: Float[Tensor, "entries width"],
    targets: Int[Tensor, " rows"],
    *,
    first: int,
    group: str,
    chunk: LossChunk,
    entries: int,
    multiple: int = 1,
    bias: Float[Tensor, " entries"] | None = None,
    cap: float | None = None,
    chunk_loss: Callable[..., Tensor] | None = None,
    factors: Float[Tensor, " rows"] | None = None,
) -> SumAndWeight:
    """Summed cross-entropy over the whole vocabulary, the same on all ranks, and the number of targets that count.

    The gradient of hidden states is this rank's part of a sum.

    Args:
        hidden: the same on all ranks.
        weight: the head's rows here.
        targets: in the whole vocabulary; ``IGNORE`` counts for nothing.
        first: number of the first row here.
        group: name of the ranks' group.
        chunk: tokens whose logits are made at a time.
        entries: rows of the rank that has most.
        multiple: as for ``linear_cross_entropy``.
        bias: of the rows here; None: nothing is added.
        cap: soft bound of logits; None: there is none.
        chunk_loss: takes what ``_chunk_loss`` does, in its place.
        factors: as for ``linear_cross_entropy``.
    """
    one = partial(chunk_loss or _chunk_loss, first=first, group=group)
    return linear_cross_entropy(
        hidden,
        weight,
        targets,
        bias=bias,
        chunk=chunk,
        entries=entries,
        chunk_loss=one,
        multiple=multiple,
        cap=cap,
        factors=factors,
    )


def token_losses(
    hidden: Float[Tensor, "rows width"],
    head: Float[Tensor, "entries width"],
    targets: Int[Tensor, " rows"],
    *,
    first: int,
    group: str,
    bias: Float[Tensor, " entries"] | None = None,
    cap: float | None = None,
) -> Float[Tensor, " rows"]:
    """Returns the cross-entropy of each row, 0 where its target does not count."""
    losses, *_ = _losses(Head(head, head.shape[0], bias, cap).logits(hidden), targets, first, group)
    return losses


def _losses(logits: Tensor, target: Tensor, first: int, group: str) -> tuple[Tensor, Tensor, Tensor, Place]:
    """Returns each row's loss, exponentials of its logits, which are overwritten, their whole sum, and target's place.

    Two messages: the largest logit of a row, then both sums that the loss needs.
    """
    largest = added(logits.amax(dim=-1), group, "max")
    logits -= largest.unsqueeze(1)
    index, mine = place_of(target, first, logits.shape[1])
    own = torch.where(mine, logits.gather(1, index.unsqueeze(1)).squeeze(1), 0)
    exponentials = logits.exp_()
    total, of_target = added(torch.stack([exponentials.sum(dim=-1), own]), group)
    losses = torch.where(target != IGNORE, total.log() - of_target, 0)
    return losses, exponentials, total, (index, mine)


def _chunk_loss(part: Tensor, head: Head, target: Tensor, grads: Gradients | None, *, first: int, group: str) -> Tensor:
    """As the loss of one process: summed loss of a chunk, its gradients into ``grads``."""
    exact = torch.promote_types(part.dtype, torch.float32)
    logits = head.logits(part)
    bounded = None if head.cap is None else logits.clone()  # exponentials take its place
    losses, grad, total, (index, mine) = _losses(logits, target, first, group)
    if grads is not None:
        grad /= total.unsqueeze(1)
        grad.scatter_add_(1, index.unsqueeze(1), -mine.to(exact).unsqueeze(1))
        add_gradients(head.uncapped(grad, bounded), part, head.weight, target, grads)
    return losses.sum()
