"""From hidden states to embeddings, and what they cost where they should be told apart.

Shape legend: ``rows`` (records), ``seq`` (tokens of a record), ``texts`` (of a record: anchor, positive, negatives),
``width``, ``groups``, ``group`` (records of one group), ``others`` (candidates of a group).
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

Pooling = Literal["mean", "cls", "last"]


def pooled(
    hidden: Float[Tensor, "rows seq width"], documents: Int[Tensor, "rows seq"], *, texts: int, pooling: Pooling
) -> Float[Tensor, "rows texts width"]:
    """Returns one vector of length 1 for each text: of all its tokens the mean, or its first or last token's.

    Args:
        hidden: of a network.
        documents: the number of each token's text; ``texts`` or more is padding.
        texts: of a record.
        pooling: which tokens.
    """
    exact = torch.promote_types(hidden.dtype, torch.float32)
    of = (documents.unsqueeze(-1) == torch.arange(texts, device=documents.device)).to(exact)
    sizes = of.sum(dim=1, keepdim=True)
    if pooling == "mean":
        shares = of / sizes.clamp_min(1)
    else:
        place = of.cumsum(dim=1)
        shares = of * (place == (1 if pooling == "cls" else sizes))
    return F.normalize(shares.transpose(1, 2) @ hidden.to(exact), dim=-1)


def info_nce(
    made: Float[Tensor, "groups group texts width"], keys: Int[Tensor, "groups group texts"], *, temperature: float
) -> Float[Tensor, "groups group"]:
    """Returns of each anchor the cross-entropy of its positive among all candidates of its group, in nats.

    Candidates are the positives and the negatives of all records of the group; their scores are cosines divided by the
    temperature (InfoNCE: van den Oord et al., 2018, arXiv 1807.03748, equation 4; with negatives of the batch:
    Karpukhin et al., 2020, arXiv 2004.04906, section 3.2). A candidate that is the same text as the positive is none.

    Args:
        made: embeddings of length 1.
        keys: a number of each text, equal for equal texts.
        temperature: above 0.
    """
    group = made.shape[1]
    anchors, others = made[:, :, 0], made[:, :, 1:].transpose(1, 2).flatten(1, 2)  # positives first
    scores = anchors @ others.transpose(1, 2) / temperature
    same = keys[:, :, 1].unsqueeze(2) == keys[:, :, 1:].transpose(1, 2).flatten(1, 2).unsqueeze(1)
    own = torch.arange(group, device=made.device)
    same[:, own, own] = False
    scores = scores.masked_fill(same, -torch.inf)
    return scores.logsumexp(dim=-1) - scores[:, own, own]
