"""Attention by torch's ``flex_attention``: blocks of scores that no token may look at are passed over.

Which blocks those are follows from causality and from where documents begin and end, a few numbers for each block: no
matrix of tokens x tokens is made, neither of scores nor of what is hidden.

Shape legend: ``batch``, ``keys`` (tokens attended to), ``rows`` and ``columns`` (blocks of queries and of keys),
``block`` (tokens of one).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import _disable_current_modes

from trainwright.model.attention import Keys, MaskedKernel, Queries
from trainwright.planner.counts.pieces import FLEX_BLOCK_TOKENS as BLOCK

Documents = Int[Tensor, "batch keys"]
_FLEX: Callable[..., Any] = flex_attention
Chosen = Bool[Tensor, "#batch 1 rows columns"]


@torch.compiler.disable
def flex(
    documents: Documents | None, *, first: int, keys: int, device: torch.device, window: int | None = None
) -> MaskedKernel:
    """Returns attention of the tokens from ``first`` on to themselves and earlier tokens of their own document.

    It is made outside compiled code, once for all layers.

    Args:
        documents: an id per token; None: one document each.
        first: the first token that looks; those before it are seen alone.
        keys: tokens of a sequence up to the last one that looks.
        device: where attention is computed.
        window: tokens that one sees, its own the last; None: all earlier ones.
    """
    # An empty micro batch has no document to ask for.
    known = documents if documents is not None and len(documents) else None
    return FlexAttention(block_mask(known, first=first, keys=keys, device=device, window=window))


class FlexAttention:
    """Attention with a block mask, over any number of heads."""

    def __init__(self, seen: BlockMask) -> None:
        self.seen = seen

    def __call__(self, query: Queries, key: Keys, value: Keys) -> Queries:
        """Mixes the values that each query may see."""
        grouped = key.shape[1] != query.shape[1]
        if not query.shape[0]:
            return scaled_dot_product_attention(query, key, value, enable_gqa=grouped)
        how: dict[str, Any] = {"block_mask": self.seen, "enable_gqa": grouped}
        mixed: Tensor
        if torch.compiler.is_compiling():
            mixed = _FLEX(query, key, value, **how)
            return mixed
        # Left alone it makes all scores. A processor has no gradients of the compiled one, and serves tests alone.
        run = _FLEX if query.device.type == "cpu" else _compiled()
        # Nothing is compiled beneath what watches operations, such as the rehearsal that counts what a pass keeps.
        with _disable_current_modes():
            mixed = run(query, key, value, **how)
        return mixed


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(_FLEX)


def block_mask(
    documents: Documents | None, *, first: int, keys: int, device: torch.device, window: int | None = None
) -> BlockMask:
    """Returns which blocks of scores have something to see, which of them nothing to hide, and the rule inside a block.

    Args:
        documents: an id per token, of at least one sequence.
        first: as in ``flex``.
        keys: as in ``flex``.
        device: as in ``flex``.
        window: as in ``flex``.
    """
    near = keys if window is None else min(window, keys)
    partly, wholly = _blocks(documents, first=first, keys=keys, device=device, window=near)
    return BlockMask.from_kv_blocks(
        *_listed(partly),
        *_listed(wholly),
        BLOCK_SIZE=BLOCK,
        mask_mod=_rule(documents, first, keys, near),
        seq_lengths=(keys - first, keys),
    )


def _rule(
    documents: Documents | None, first: int, keys: int, window: int
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Returns which query sees which key of a sequence; torch traces it, and so it has no shapes that are checked."""
    if window < keys:
        if documents is None:
            return lambda batch, head, query, key: (query + first >= key) & (query + first < key + window)
        return lambda batch, head, query, key: (
            (query + first >= key)
            & (query + first < key + window)
            & (documents[batch, query + first] == documents[batch, key])
        )
    if documents is None:
        return lambda batch, head, query, key: query + first >= key
    return lambda batch, head, query, key: (
        (query + first >= key) & (documents[batch, query + first] == documents[batch, key])
    )


def _blocks(
    documents: Documents | None, *, first: int, keys: int, device: torch.device, window: int
) -> tuple[Chosen, Chosen]:
    """Returns the blocks of which some scores are seen, and those of which all are."""
    queries, seen = (torch.arange(begin, keys, BLOCK, device=device) for begin in (first, 0))
    query_ends, seen_ends = (begins.add(BLOCK - 1).clamp(max=keys - 1) for begins in (queries, seen))
    some = (seen <= query_ends[:, None]) & (seen_ends > queries[:, None] - window)
    every = (seen_ends <= queries[:, None]) & (seen > query_ends[:, None] - window)
    # What fills the last block up is no token.
    every = every & (queries + BLOCK <= keys)[:, None] & (seen + BLOCK <= keys)
    some, every = some[None, None], every[None, None]
    if documents is not None:
        least, most = (each[:, :, None] for each in _extremes(documents, queries))
        least_seen, most_seen = (each[:, None] for each in _extremes(documents, seen))
        some = some & ((least <= most_seen) & (least_seen <= most)).unsqueeze(1)
        every = every & ((least == most_seen) & (least_seen == most)).unsqueeze(1)
    return some & ~every, every


def _extremes(documents: Documents, begins: Int[Tensor, " blocks"]) -> tuple[Tensor, Tensor]:
    """Returns the least and the greatest document in each block, ``[batch, blocks]``."""
    places = begins[:, None] + torch.arange(BLOCK, device=documents.device)
    inside = documents[:, places.clamp(max=documents.shape[1] - 1)]
    return inside.amin(dim=-1), inside.amax(dim=-1)


def _listed(chosen: Chosen) -> tuple[Int[Tensor, "#batch 1 rows"], Int[Tensor, "#batch 1 rows columns"]]:
    """Returns how many blocks of each row are chosen, and the numbers of all: first of these, in order."""
    order = chosen.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return chosen.sum(dim=-1, dtype=torch.int32), order.to(torch.int32)
