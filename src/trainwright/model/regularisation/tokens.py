"""Label smoothing and z-loss, a chunk of tokens at a time, also over a vocabulary that ranks share.

Of a token with logits l over V entries, target t and log Z = log sum exp l, the loss is

    log Z - (1 - s) l_t - s mean(l) + w (log Z)^2,

with the smoothing s of Szegedy et al. (2016, arXiv 1512.00567, section 7), as torch's ``cross_entropy`` has it, and the
weight w of PaLM's z-loss (Chowdhery et al., 2022, arXiv 2204.02311, section 5). Its gradient of logits is
softmax(l) (1 + 2 w log Z) - (1 - s) onehot(t) - s / V.

Shape legend: ``rows`` (of hidden states), ``width``, ``entries`` (of the vocabulary here).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.model.losses import IGNORE, Gradients, Head, add_gradients
from trainwright.model.parallel.vocabulary import place_of
from trainwright.runtime.collectives import added


def chunk_loss(
    part: Float[Tensor, "rows width"],
    head: Head,
    target: Int[Tensor, " rows"],
    grads: Gradients | None,
    *,
    label_smoothing: float,
    z_weight: float,
    vocabulary: int,
    first: int = 0,
    group: str | None = None,
) -> Float[Tensor, ""]:
    """Summed loss of a chunk, the same on all ranks; its gradients go into ``grads``.

    Args:
        part: hidden states, the same on all ranks.
        head: its rows here.
        target: in the whole vocabulary; ``IGNORE`` counts for nothing.
        grads: as for the loss without these terms; None: none are wanted.
        label_smoothing: share of a target that all entries have alike.
        z_weight: weight of the squared logarithm of the softmax's denominator.
        vocabulary: entries of all ranks.
        first: number of the first entry here.
        group: name of the ranks' group; None: all entries are here.
    """
    logits = head.logits(part)
    bounded = None if head.cap is None else logits.clone()  # exponentials take its place
    largest = logits.amax(dim=-1)
    largest = largest if group is None else added(largest, group, "max")
    logits -= largest.unsqueeze(1)
    index, mine = place_of(target, first, logits.shape[1])
    own = torch.where(mine, logits.gather(1, index.unsqueeze(1)).squeeze(1), 0)
    whole = logits.sum(dim=-1)
    exponentials = logits.exp_()
    sums = torch.stack([exponentials.sum(dim=-1), own, whole])
    total, of_target, of_all = sums if group is None else added(sums, group)
    log_z = largest + total.log()
    losses = total.log() - (1 - label_smoothing) * of_target - label_smoothing / vocabulary * of_all
    losses = torch.where(target != IGNORE, losses + z_weight * log_z.square(), 0)
    if grads is not None:
        grad = exponentials.mul_(((1 + 2 * z_weight * log_z) / total).unsqueeze(1))
        grad.scatter_add_(1, index.unsqueeze(1), (label_smoothing - 1) * mine.to(grad.dtype).unsqueeze(1))
        grad -= label_smoothing / vocabulary
        add_gradients(head.uncapped(grad, bounded), part, head.weight, target, grads)
    return losses.sum()
