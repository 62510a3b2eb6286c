"""Causal self-attention with grouped key/value heads, rotary positions, document masks and a key/value cache.

Shape legend: ``batch``, ``seq`` (query tokens), ``keys`` (tokens attended to), ``heads``, ``kv_heads``, ``head``,
``stream`` (query tokens that the residual stream has here: with sequence parallelism a part of ``seq``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainwright.model.layers import Linear
from trainwright.planner.counts.pieces import makes_scores
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import AttentionKernel

if TYPE_CHECKING:
    from trainwright.model.cache import KVCache
    from trainwright.model.dropout import Draw, Mix

Mask = Float[Tensor, "#batch 1 seq keys"]
"""Added to scores: 0 where a token may look, -inf where it may not."""
Queries = Float[Tensor, "batch heads seq head"]
Keys = Float[Tensor, "batch kv_heads keys head"]
MaskedKernel = Callable[[Queries, Keys, Keys], Queries]
"""Attention that was told once, for all layers of a pass, what each token may see (``model.kernels``)."""
Context = Callable[..., Queries]
"""What stands for ``attend`` where other ranks have other tokens: ``attend`` of ``model.parallel.context``."""
Rotary = tuple[Float[Tensor, "#batch 1 seq half"], Float[Tensor, "#batch 1 seq half"]]


class RotaryTable(nn.Module):
    """Cosines and sines of rotary positions (Su et al., 2021) in the half-split layout of Llama.

    The table is a function of the spec alone and belongs to no checkpoint.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        half = torch.arange(0, spec.head_size, 2, dtype=torch.float64) / spec.head_size
        angles = torch.outer(torch.arange(spec.context_tokens, dtype=torch.float64), spec.rope_theta**-half)
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(self, positions: Int[Tensor, "#batch seq"], dtype: torch.dtype) -> Rotary:
        """Cosines and sines of these positions, one for each pair of a head."""
        return self.cosines[positions].to(dtype).unsqueeze(1), self.sines[positions].to(dtype).unsqueeze(1)


def rotate(x: Float[Tensor, "batch n seq head"], rotary: Rotary) -> Float[Tensor, "batch n seq head"]:
    """Turn each pair (x[i], x[i + head/2]) by its position's angle."""
    cosines, sines = rotary
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)


class Attention(nn.Module):
    """Multi-head attention; ``kv_heads < heads`` groups queries (Ainslie et al., 2023)."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.kernel: AttentionKernel = "auto"
        self.head_size = spec.head_size
        self.query = Linear(spec.width, spec.heads * spec.head_size, bias=spec.bias)
        self.key = Linear(spec.width, spec.kv_heads * spec.head_size, bias=spec.bias)
        self.value = Linear(spec.width, spec.kv_heads * spec.head_size, bias=spec.bias)
        self.out = Linear(spec.heads * spec.head_size, spec.width, bias=spec.bias)

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
        # As many heads as there are outputs: a rank of a tensor-parallel layout has some of them.
        heads = (-1, self.head_size)
        query = self.query(x).unflatten(-1, heads).transpose(1, 2)
        key = self.key(x).unflatten(-1, heads).transpose(1, 2)
        value = self.value(x).unflatten(-1, heads).transpose(1, 2)
        if rotary is not None:
            query, key = rotate(query, rotary), rotate(key, rotary)
        if cache is not None:
            key, value = cache.append(self.layer, key, value)
        if context is not None:
            mixed = context(query, key, value, self.kernel, draw=draw, layer=self.layer)
        else:
            mixed = attend(query, key, value, mask, self.kernel, mix=None if draw is None else draw.mix(self.layer))
        result = self.out(mixed.transpose(1, 2).flatten(2))
        return result if draw is None else draw.attention_output(result, self.layer)


def attend(
    query: Queries,
    key: Keys,
    value: Keys,
    mask: Mask | MaskedKernel | None,
    kernel: AttentionKernel = "auto",
    *,
    mix: Mix | None = None,
) -> Queries:
    """Softmax attention; without a mask, queries are the newest tokens and stand in causal order.

    ``mix`` takes the place of the product of weights and values; the weights are made whole for it.

    Left to itself, training on a CPU with short sequences makes the whole score matrix: there batched products are 1.2
    to 1.3 times as fast as torch's fused kernel in bf16 (``benchmarks/kernels.py``). Elsewhere it is torch's own
    choice, and in generation it always is.
    """
    if mask is not None and not isinstance(mask, Tensor):
        return mask(query, key, value)
    seq, keys = query.shape[-2], key.shape[-2]
    grouped = key.shape[1] != query.shape[1]
    whole = makes_scores(kernel, device_kind=query.device.type, sequence_tokens=keys)
    if mix is None and not (whole and torch.is_grad_enabled()):
        # A lone query is the newest token and sees every key.
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None and seq > 1, enable_gqa=grouped
        )
    if grouped:
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    if mask is None:
        mask = torch.full((seq, keys), float("-inf"), dtype=query.dtype, device=query.device).triu(keys - seq + 1)
    scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-2, -1)) + mask
    return (mix or torch.matmul)(torch.softmax(scores, dim=-1), value)


def document_mask(documents: Int[Tensor, "batch keys"], dtype: torch.dtype, *, first: int = 0) -> Mask:
    """0 where a token may look, at itself and earlier tokens of its own document, -inf elsewhere; for all layers.

    ``first`` is the first token that looks; those before it are seen alone.
    """
    hidden = documents[:, first:, None] != documents[:, None, :]
    hidden |= hidden.new_ones(hidden.shape[1:]).triu(1 + first)
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, float("-inf")).unsqueeze(1)


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
