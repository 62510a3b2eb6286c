"""``Mixture``: a feed-forward of experts, of which each token passes some; no token is dropped.

Shape legend: ``batch``, ``seq`` (tokens), ``tokens`` (of the whole pass), ``width``, ``rows`` (copies of tokens, sorted
by expert), ``experts``.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainwright.model.experts.balance import Share, loads, sequence_loss, with_loss
from trainwright.model.experts.products import ExpertLinear, copied, returned
from trainwright.model.experts.routing import Router, Routing
from trainwright.model.layers import ACTIVATIONS, GatedFeedForward, Linear
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts


class Mixture(nn.Module):
    """``active`` of ``count`` experts for each token, weighted and added up, and what all tokens pass beside them.

    Copies of tokens are sorted by expert, and each expert multiplies as many rows as chose it: no capacity, and no
    token is dropped (MegaBlocks, Gale et al., 2022, arXiv 2211.15841).

    ``load`` counts the choices of each expert since it was last set to zero, in training passes alone.
    """

    load: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.experts is not None
        self.experts: Experts = spec.experts
        self.activate = ACTIVATIONS[spec.activation]
        count, inner, bias = self.experts.count, self.experts.ffn_width, self.experts.bias
        self.router = Router(spec)
        self.gate = ExpertLinear(count, spec.width, inner, bias=bias)
        self.up = ExpertLinear(count, spec.width, inner, bias=bias)
        self.down = ExpertLinear(count, inner, spec.width, bias=bias)
        shared = self.experts.shared_ffn_width
        self.shared = GatedFeedForward(replace(spec, ffn_width=shared, bias=bias)) if shared else None
        self.shared_gate = Linear(spec.width, 1, bias=False) if self.experts.shared_gate else None
        self.register_buffer("load", torch.zeros(count, dtype=torch.int64), persistent=False)

    @property
    def learns_to_route(self) -> bool:
        """Returns whether the router is trained: a frozen one is not balanced, neither by a loss nor by biases."""
        return self.router.weight.requires_grad

    def forward(
        self, x: Float[Tensor, "batch seq width"], share: Share | None = None
    ) -> Float[Tensor, "batch seq width"]:
        """Returns what the experts of each token make of it; with a ``share`` their load is counted and balanced."""
        tokens = x.flatten(0, 1)
        routing = self.router(tokens)
        y = self._routed(tokens, routing).view(x.shape)
        if self.shared is not None:
            beside = self.shared(x)
            y = y + (beside if self.shared_gate is None else torch.sigmoid(self.shared_gate(x)) * beside)
        if share is None or not torch.is_grad_enabled():
            return y
        self._count(routing, share, sequences=x.shape[0])
        if not (self.experts.loss_weight or self.experts.z_weight) or not x.numel() or not self.learns_to_route:
            return y
        return with_loss(y, sequence_loss(routing, self.experts, sequences=x.shape[0]), share)

    def _routed(self, x: Float[Tensor, "tokens width"], routing: Routing) -> Float[Tensor, "tokens width"]:
        active = self.experts.active
        pairs = routing.chosen.flatten()
        order = pairs.argsort(stable=True)
        places = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        counts = loads(routing.chosen, self.experts.count)
        rows = copied(x, order, places, active=active)
        each = returned(self.passed(rows, counts), order, places, active=active)
        return (each * routing.weights.to(each.dtype).unsqueeze(-1)).sum(1)

    def passed(self, rows: Float[Tensor, "rows width"], counts: Int[Tensor, " experts"]) -> Float[Tensor, "rows width"]:
        """Returns what each row's expert makes of it; rows lie in the order of experts, which have so many."""
        return self.down(self._activated(self.gate(rows, counts), self.up(rows, counts)), counts)

    def _activated(self, gate: Float[Tensor, "rows ffn"], up: Float[Tensor, "rows ffn"]) -> Float[Tensor, "rows ffn"]:
        """Returns a gated activation; with a limit gpt-oss's: both clamped, a steeper gate, one added to the other."""
        limit = self.experts.limit
        if limit is None:
            return self.activate(gate) * up
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return gate * torch.sigmoid(gate * self.experts.steepness) * (up + 1)

    @torch.no_grad()
    def _count(self, routing: Routing, share: Share, *, sequences: int) -> None:
        """Adds this pass to the load; a pass that is made again in the backward pass is not counted again."""
        if torch._C._current_graph_task_id() != -1:  # noqa: SLF001  # torch's checkpoint asks so too
            return
        chosen: Int[Tensor, ...] = routing.chosen
        if share.sequences is not None and sequences:
            chosen = chosen[: chosen.shape[0] // sequences * share.sequences]
        self.load += loads(chosen, self.experts.count)
