"""Attention by FlashAttention-3 (Shah et al., 2024, arXiv 2407.08608): NVIDIA's Hopper, in 16 bits.

Its package, built from the folder ``hopper`` of Dao-AILab/flash-attention, is called itself: torch's own switch
(``torch.nn.attention.activate_flash_attention_impl``) puts it behind ``scaled_dot_product_attention``, which knows
no documents.

Shape legend: ``batch``, ``keys`` (tokens attended to), ``bounds`` (of the documents: one more than there are).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from trainwright.core.errors import MachineError, RecipeError
from trainwright.model.attention import Keys, MaskedKernel, Queries
from trainwright.model.kernels.refusals import FLASH3_INSTALL, FLASH3_MODULE


class Packed(NamedTuple):
    """Where documents begin among all queries and among all keys of a micro batch, and where the last one ends."""

    queries: Int[Tensor, " bounds"]
    keys: Int[Tensor, " bounds"]


@torch.compiler.disable
def flash3(
    documents: Int[Tensor, "batch keys"] | None,
    *,
    first: int,
    keys: int,
    device: torch.device,
    window: int | None = None,
) -> MaskedKernel:
    """Returns attention of the tokens from ``first`` on to themselves and earlier tokens of their own document.

    How many documents there are decides a shape: the host waits for it, once a pass.

    Args:
        documents: an id per token, neighbours of one document alike; None: one document each.
        first: the first token that looks; those before it are seen alone.
        keys: tokens of a sequence up to the last one that looks.
        device: where attention is computed; nothing is made there without documents.
        window: none; plans with one are refused before (``kernels.refusals``).

    Raises:
        MachineError: the package is not installed.
        RecipeError: there is a window.
    """
    del device
    if window is not None:
        where, seen = "train.exec.attention", f"fa3, and a window of {window} tokens"
        raise RecipeError("this kernel is given no windows here", where=where, seen=seen, fix="set attention=sdpa")
    try:
        functions = import_module(FLASH3_MODULE)
    except ImportError as error:
        raise MachineError(
            "FlashAttention-3 cannot be imported: {reason}",
            where="train.exec.attention",
            seen="fa3",
            fix=f"{FLASH3_INSTALL}, or set train.exec.attention=sdpa",
            reason=str(error),
        ) from error
    packed = None if documents is None or not len(documents) else packed_documents(documents, first=first)
    return FlashAttention3(functions, packed, queries=keys - first, keys=keys)


def packed_documents(documents: Int[Tensor, "batch keys"], *, first: int = 0) -> Packed:
    """Returns the bounds of documents; those that end before ``first`` have no queries.

    Args:
        documents: an id per token of at least one sequence.
        first: the first token that looks.
    """
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    size = documents.shape[1]
    row, place = begins.nonzero().unbind(dim=1)
    known = row * size + place, row * (size - first) + (place - first).clamp(min=0)
    ends = documents.numel(), len(documents) * (size - first)
    keys, queries = (
        torch.cat((bounds, bounds.new_tensor([end]))).to(torch.int32) for bounds, end in zip(known, ends, strict=True)
    )
    return Packed(queries=queries, keys=keys)


class FlashAttention3:
    """Causal attention whose last query stands at the last key, of whole sequences or of each of their documents."""

    def __init__(self, functions: Any, packed: Packed | None, *, queries: int, keys: int) -> None:
        """Bind what a pass needs.

        Args:
            functions: the package.
            packed: where documents lie; None: a sequence is one.
            queries: of a sequence.
            keys: of a sequence: no document is longer.
        """
        self.functions, self.packed = functions, packed
        self.queries, self.keys = queries, keys

    @torch.compiler.disable
    def __call__(self, query: Queries, key: Keys, value: Keys) -> Queries:
        """Mixes the values that each query may see; compiled code ends before it and begins again behind it."""
        batch = query.shape[0]
        if not batch:
            return scaled_dot_product_attention(query, key, value, enable_gqa=key.shape[1] != query.shape[1])
        rows = [each.transpose(1, 2) for each in (query, key, value)]
        how = {
            "softmax_scale": query.shape[-1] ** -0.5,
            "causal": True,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }
        if self.packed is None:
            mixed = _result(self.functions.flash_attn_func(*rows, **how))
        else:
            longest = {"max_seqlen_q": self.queries, "max_seqlen_k": self.keys}
            bounds = {"cu_seqlens_q": self.packed.queries, "cu_seqlens_k": self.packed.keys}
            flat = [each.flatten(0, 1) for each in rows]
            mixed = _result(self.functions.flash_attn_varlen_func(*flat, **bounds, **longest, **how))
            mixed = mixed.unflatten(0, (batch, -1))
        return mixed.transpose(1, 2)


def _result(returned: Any) -> Tensor:
    """Returns what was mixed: earlier versions return the statistic of the softmax beside it."""
    mixed: Tensor = returned[0] if isinstance(returned, tuple) else returned
    return mixed
