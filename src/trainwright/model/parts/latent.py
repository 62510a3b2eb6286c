"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values from one narrow latent.

Shape legend: ``batch``, ``seq`` (tokens), ``width``, ``heads``, ``head`` (unrotated elements of queries and keys),
``turned`` (rotated elements), ``value``, ``rank`` (of the latent), ``n`` (heads of one kind).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from trainwright.model.attention import Attention, Keys, Queries, Values
from trainwright.model.layers import Linear, RMSNorm
from trainwright.model.parts.rotary import Rotary, rotate
from trainwright.spec.model import ModelSpec

EPSILON = 1e-6
"""Of the latents' norms, whatever that of the others is (deepseek-ai/DeepSeek-V3, inference/model.py, RMSNorm)."""


class LatentAttention(Attention):
    """Attention of heads whose keys and values are projected up from one latent of each token.

    Of a key ``turned`` elements come straight from the width, are turned by the position and serve all heads. Training
    and the cache have keys and values of all heads, expanded; the latent alone would be cached in less memory, and
    attention over it computes the same.
    """

    query_norm: RMSNorm

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        nn.Module.__init__(self)  # other projections than its parent's
        latent = spec.latent
        assert latent is not None
        self.layer, self.latent = layer, latent
        self.kernel = "auto"
        self.head_size = spec.head_size
        self.score_cap, self.sinks, self.causal = spec.score_cap, None, True
        scale = spec.scales.attention
        self.query_scale = None if scale is None else scale * math.sqrt(spec.score_size)
        bias = spec.qkv_biased
        queries = spec.heads * spec.score_size
        if latent.query_rank is None:
            self.query = Linear(spec.width, queries, bias=False)
        else:
            self.query_down = Linear(spec.width, latent.query_rank, bias=bias)
            self.query_norm = RMSNorm(latent.query_rank, epsilon=EPSILON)
            self.query_up = Linear(latent.query_rank, queries, bias=False)
        self.kv_down = Linear(spec.width, latent.kv_rank + latent.rope_size, bias=bias)
        self.kv_norm = RMSNorm(latent.kv_rank, epsilon=EPSILON)
        self.kv_up = Linear(latent.kv_rank, spec.heads * (spec.head_size + latent.value_size), bias=False)
        bias = spec.output_biased
        self.out = Linear(spec.heads * latent.value_size, spec.width, bias=bias)

    def projected(self, x: Float[Tensor, "batch seq width"], rotary: Rotary | None) -> tuple[Queries, Keys, Values]:
        """Returns queries, keys and values of all heads; of queries and keys the last elements are turned."""
        latent = self.latent
        sizes = (self.head_size, latent.rope_size)
        query = self.query(x) if latent.query_rank is None else self.query_up(self.query_norm(self.query_down(x)))
        still, turned = query.unflatten(-1, (-1, sum(sizes))).transpose(1, 2).split(sizes, dim=-1)
        narrow, shared = self.kv_down(x).split((latent.kv_rank, latent.rope_size), dim=-1)
        wide = self.kv_up(self.kv_norm(narrow)).unflatten(-1, (-1, self.head_size + latent.value_size))
        key, value = wide.transpose(1, 2).split((self.head_size, latent.value_size), dim=-1)
        shared = shared.unsqueeze(1)
        if rotary is not None:
            turned, shared = self._turned(turned, rotary), self._turned(shared, rotary)
        query = torch.cat((still, turned), dim=-1)
        if self.query_scale is not None:
            query = query * self.query_scale
        return query, torch.cat((key, shared.expand(-1, key.shape[1], -1, -1)), dim=-1), value

    def _turned(self, x: Float[Tensor, "batch n seq turned"], rotary: Rotary) -> Float[Tensor, "batch n seq turned"]:
        """Returns pairs turned; neighbours are put half a row apart first, alike in queries and keys."""
        if self.latent.interleaved:
            x = x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
        return rotate(x, rotary)
