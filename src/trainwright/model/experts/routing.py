"""Token-choice routing: each token's scores of all experts, the experts that it is sent to, and with which weights.

Shape legend: ``tokens``, ``width``, ``experts``, ``active`` (experts of one token), ``groups``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts


@dataclass(frozen=True, slots=True)
class Routing:
    """Where tokens go.

    Attributes:
        chosen: the experts of each token, ``[tokens, active]``.
        weights: of their results, ``[tokens, active]``, in fp32 or wider.
        scores: of all experts, ``[tokens, experts]``; of softmax they sum to one.
        logits: of which scores are made, ``[tokens, experts]``.
    """

    chosen: Int[Tensor, "tokens active"]
    weights: Float[Tensor, "tokens active"]
    scores: Float[Tensor, "tokens experts"]
    logits: Float[Tensor, "tokens experts"]


class Router(nn.Module):
    """A matrix, scores, and a choice of the ``active`` best (Shazeer et al., 2017, arXiv 1701.06538).

    Scores are the softmax of all experts (Fedus et al., 2021, arXiv 2101.03961), or each expert's own sigmoid
    (DeepSeek-V3, arXiv 2412.19437, section 2.1.2). Products and scores are fp32 whatever the activations are, of
    weights in the dtype of activations, in which layouts gather them.

    ``correction`` is what bias balancing adds to scores for the choice alone (Wang et al., 2024, arXiv 2408.15664): no
    gradient moves it, a checkpoint holds it, and it stays fp32 where all else is made narrower.
    """

    products: int = 1
    """Matrices that an input is multiplied by, as a ``Linear`` says."""
    correction: Tensor | None

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.experts is not None
        self.experts: Experts = spec.experts
        self.weight = nn.Parameter(torch.empty(self.experts.count, spec.width))
        self.bias = nn.Parameter(torch.empty(self.experts.count)) if self.experts.router_bias else None
        balanced = self.experts.balance == "bias"
        self.register_buffer("correction", torch.zeros(self.experts.count) if balanced else None)

    def forward(self, x: Float[Tensor, "tokens width"]) -> Routing:
        """Returns where these tokens go; of two equal scores torch's ``topk`` decides."""
        exact = torch.promote_types(x.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(x.dtype).to(exact)
        logits = F.linear(x.to(exact), self.weight.to(x.dtype).to(exact), bias)
        scores = logits.softmax(-1) if self.experts.scores == "softmax" else logits.sigmoid()
        chosen = self._chosen(scores.detach())
        weights = scores.gather(1, chosen)
        if self.experts.normalised:
            weights = weights / (weights.sum(-1, keepdim=True) + _TINY)
        return Routing(chosen, weights * self.experts.scale, scores, logits)

    def _chosen(self, scores: Float[Tensor, "tokens experts"]) -> Int[Tensor, "tokens active"]:
        experts = self.experts
        if self.correction is not None:
            scores = scores + self.correction
        if experts.active_groups < experts.groups:
            by_group = scores.unflatten(-1, (experts.groups, -1))
            best = by_group.topk(min(experts.group_best, by_group.shape[-1]), dim=-1).values.sum(-1)
            kept = torch.zeros_like(best, dtype=torch.bool)
            kept.scatter_(1, best.topk(experts.active_groups, dim=-1).indices, value=True)
            scores = by_group.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(1)
        return scores.topk(experts.active, dim=-1).indices

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Moves to another device with the rest, and keeps the correction's precision: it tells near scores apart."""
        exact = self.correction
        super()._apply(fn, recurse)
        if exact is not None and self.correction is not None and self.correction.dtype != exact.dtype:
            self.correction = exact.to(self.correction.device)
        return self


_TINY = 1e-20
"""Keeps a sum of sigmoids from zero, as DeepSeek-V3 does."""
