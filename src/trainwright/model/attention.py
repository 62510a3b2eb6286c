"""Causal self-attention with grouped key/value heads, rotary positions, document masks and a key/value cache.

Shape legend: ``batch``, ``seq`` (query tokens), ``keys`` (tokens attended to), ``heads``, ``kv_heads``, ``head``,
``value`` (elements of one head's value, mostly as many),
``stream`` (query tokens that the residual stream has here: with sequence parallelism a part of ``seq``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainwright.model.layers import Linear, make_norm
from trainwright.model.parts.rotary import Rotary, rotate
from trainwright.planner.counts.pieces import makes_scores
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import AttentionKernel

if TYPE_CHECKING:
    from trainwright.model.cache import KVCache
    from trainwright.model.dropout import Draw, Mix

Mask = Float[Tensor, "#batch #heads seq keys"]
"""Added to scores: 0 or a bias of the head where a token may look, -inf where it may not."""
Queries = Float[Tensor, "batch heads seq head"]
Keys = Float[Tensor, "batch kv_heads keys head"]
Values = Float[Tensor, "batch kv_heads keys value"]
Mixed = Float[Tensor, "batch heads seq value"]
MaskedKernel = Callable[[Queries, Keys, Keys], Queries]
"""Attention that was told once, for all layers of a pass, what each token may see (``model.kernels``)."""
Context = Callable[..., Queries]
"""What stands for ``attend`` where other ranks have other tokens: ``attend`` of ``model.parallel.context``."""


class Attention(nn.Module):
    """Multi-head attention; ``kv_heads < heads`` groups queries (Ainslie et al., 2023)."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.kernel: AttentionKernel = "auto"
        self.head_size = spec.head_size
        self.causal = spec.kind == "decoder"
        bias = spec.qkv_biased
        self.query = Linear(spec.width, spec.heads * spec.head_size, bias=bias)
        self.key = Linear(spec.width, spec.kv_heads * spec.head_size, bias=bias)
        self.value = Linear(spec.width, spec.kv_heads * spec.head_size, bias=bias)
        bias = spec.output_biased
        self.out = Linear(spec.heads * spec.head_size, spec.width, bias=bias)
        self.query_norm = make_norm(spec, spec.head_size) if spec.qk_norm else None
        self.key_norm = make_norm(spec, spec.head_size) if spec.qk_norm else None
        # Kernels multiply scores by head_size^-0.5 themselves.
        scale = spec.scales.attention
        self.query_scale = None if scale is None else scale * math.sqrt(spec.head_size)
        self.score_cap = spec.score_cap
        self.sinks = nn.Parameter(torch.empty(spec.heads)) if spec.sinks else None

    def projected(self, x: Float[Tensor, "batch seq width"], rotary: Rotary | None) -> tuple[Queries, Keys, Values]:
        """Returns queries, keys and values of all heads, turned by their positions."""
        # As many heads as there are outputs: a rank of a tensor-parallel layout has some of them.
        heads = (-1, self.head_size)
        query = self.query(x).unflatten(-1, heads).transpose(1, 2)
        key = self.key(x).unflatten(-1, heads).transpose(1, 2)
        value = self.value(x).unflatten(-1, heads).transpose(1, 2)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.query_scale is not None:
            query = query * self.query_scale
        if rotary is not None:
            query, key = rotate(query, rotary), rotate(key, rotary)
        return query, key, value

    def forward(
        self,
        x: Float[Tensor, "batch seq width"],
        *,
        rotary: Rotary | None,
        mask: Mask | MaskedKernel | None,
        cache: KVCache | None,
        draw: Draw | None = None,
        context: Context | None = None,
    ) -> Float[Tensor, "batch stream width"]:
        """Mix each token with those it may see; ``cache`` adds earlier ones, ``draw`` drops weights and results."""
        query, key, value = self.projected(x, rotary)
        if cache is not None:
            key, value = cache.append(self.layer, key, value)
        if context is not None:
            mixed = context(query, key, value, self.kernel, draw=draw, layer=self.layer, cap=self.score_cap)
        else:
            mix = None if draw is None else draw.mix(self.layer)
            cap, causal, sinks = self.score_cap, self.causal, self.sinks
            mixed = attend(query, key, value, mask, self.kernel, mix=mix, cap=cap, causal=causal, sinks=sinks)
        result = self.out(mixed.transpose(1, 2).flatten(2))
        return result if draw is None else draw.attention_output(result, self.layer)


def attend(
    query: Queries,
    key: Keys,
    value: Values,
    mask: Mask | MaskedKernel | None,
    kernel: AttentionKernel = "auto",
    *,
    mix: Mix | None = None,
    cap: float | None = None,
    causal: bool = True,
    sinks: Float[Tensor, " heads"] | None = None,
) -> Mixed:
    """Softmax attention; without a mask, queries are the newest tokens and stand in causal order, or see all keys.

    ``mix`` takes the place of the product of weights and values; the weights are made whole for it, and so are they
    where ``cap`` bounds scores softly, or each head has a score more, ``sinks``, that no value belongs to: so its
    weights may sum to less than one (gpt-oss, OpenAI, 2025, arXiv 2508.10925).

    Left to itself, training on a CPU with short sequences makes the whole score matrix: there batched products are 1.2
    to 1.3 times as fast as torch's fused kernel in bf16 (``benchmarks/kernels.py``). Elsewhere it is torch's own
    choice, and in generation it always is.
    """
    if mask is not None and not isinstance(mask, Tensor):
        return mask(query, key, value)
    seq, keys = query.shape[-2], key.shape[-2]
    grouped = key.shape[1] != query.shape[1]
    whole = makes_scores(kernel, device_kind=query.device.type, sequence_tokens=keys)
    if mix is None and cap is None and sinks is None and not (whole and torch.is_grad_enabled()):
        # A lone query is the newest token and sees every key.
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal and mask is None and seq > 1, enable_gqa=grouped
        )
    if grouped:
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    if mask is None and causal:
        mask = torch.full((seq, keys), float("-inf"), dtype=query.dtype, device=query.device).triu(keys - seq + 1)
    scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-2, -1))
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    scores = scores if mask is None else scores + mask
    if sinks is None:
        return (mix or torch.matmul)(torch.softmax(scores, dim=-1), value)
    more = sinks.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return (mix or torch.matmul)(torch.softmax(torch.cat((scores, more), dim=-1), dim=-1)[..., :-1], value)


def document_mask(
    documents: Int[Tensor, "batch keys"], dtype: torch.dtype, *, first: int = 0, window: int | None = None
) -> Mask:
    """0 where a token may look, at itself and earlier tokens of its own document, -inf elsewhere; for all layers.

    ``first`` is the first token that looks; those before it are seen alone. Of ``window`` tokens, its own the last,
    a token sees those alone.
    """
    hidden = documents[:, first:, None] != documents[:, None, :]
    hidden |= hidden.new_ones(hidden.shape[1:]).triu(1 + first)
    if window is not None:
        hidden |= hidden.new_ones(hidden.shape[1:]).tril(first - window)
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, float("-inf")).unsqueeze(1)


def seen_tokens(
    documents: Int[Tensor, "batch keys"] | None,
    dtype: torch.dtype,
    *,
    first: int,
    keys: int,
    device: torch.device,
    window: int | None = None,
) -> Mask | None:
    """Returns ``document_mask``; None where plain causality says it: no documents, all queries, all keys in the window.

    Args:
        documents: an id per token; None: one document each.
        dtype: of scores.
        first: the first token that looks.
        keys: tokens up to the last one that looks.
        device: where attention is computed.
        window: tokens that one sees, its own the last; None: all earlier ones.
    """
    window = None if window is None or window >= keys else window
    if documents is None:
        if first == 0 and window is None:
            return None
        documents = torch.zeros(1, keys, dtype=torch.long, device=device)
    return document_mask(documents, dtype, first=first, window=window)


def document_ids(tokens: Int[Tensor, "batch seq"], end_of_text: int) -> Int[Tensor, "batch seq"]:
    """Returns a number per token that changes where a document begins.

    The end-of-text token opens the next document, so that a document's first token is predicted from it alone, and
    it is itself predicted from the document it closes: every target counts and none leaks.
    """
    return (tokens == end_of_text).cumsum(dim=1)


def document_positions(documents: Int[Tensor, "batch seq"]) -> Int[Tensor, "batch seq"]:
    """Where each token stands in its document, counted from 0."""
    index = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return index - torch.where(begins, index, 0).cummax(dim=1).values
