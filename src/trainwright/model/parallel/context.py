"""Context parallelism: each rank of an axis has a part of every sequence, and attention exchanges what it lacks.

Shape legend: ``ranks`` (of the axis ``cp``), ``batch``, ``heads``, ``kv_heads``, ``seq`` (tokens of this rank),
``whole`` (tokens of a sequence: ``ranks`` times ``seq``), ``head``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup

from trainwright.core.errors import RecipeError
from trainwright.model.attention import Context, Keys, Mask, MaskedKernel, Queries, attend, seen_tokens
from trainwright.model.decoder import Decoder
from trainwright.model.network import Network
from trainwright.runtime.mesh import Mesh
from trainwright.spec.workload import AttentionKernel, ContextWay

if TYPE_CHECKING:
    from trainwright.model.dropout import Draw
    from trainwright.model.parts.alibi import Alibi

Documents = Int[Tensor, "batch whole"]

# torch 2.13 renamed them, and warns of the former names.
_ALL_GATHER = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


@dataclass(frozen=True, kw_only=True)
class Division:
    """How sequences are divided: the way, the ranks that share them, and which of them this one is.

    ``kernel_of`` makes what stands for a mask, where the network's kernel takes none; ``alibi`` are the biases of the
    heads that are here.
    """

    way: ContextWay
    group: ProcessGroup
    rank: int
    ranks: int
    kernel_of: Callable[..., MaskedKernel] | None = None
    alibi: Alibi | None = None

    def places(self, tokens: int, device: torch.device) -> Int[Tensor, " seq"]:
        """Returns where this rank's tokens stand in a sequence of so many."""
        return torch.cat([torch.arange(part.start, part.stop, device=device) for part in self.parts(tokens)])

    def parts(self, tokens: int) -> list[range]:
        """Returns this rank's stretches of a sequence of so many tokens."""
        return stretches(self.way, tokens, rank=self.rank, ranks=self.ranks)

    def context(
        self,
        documents: Documents | None,
        places: Int[Tensor, " seq"],
        dtype: torch.dtype,
        *,
        window: int | None = None,
    ) -> Context:
        """Returns what the attention of all layers uses in one pass.

        Args:
            documents: of the whole sequences; None: one document each.
            places: this rank's.
            dtype: of activations.
            window: tokens that one sees, its own the last; None: all earlier ones.
        """
        tokens = len(places) * self.ranks
        if self.way == "gather":
            device = places.device
            parts = [
                _Stretch(part, self.seen(documents, part, dtype, device, window=window), device)
                for part in self.parts(tokens)
            ]
            return GatheredKeys(group=self.group, parts=parts).attend
        mask = self.seen(documents, range(tokens), dtype, places.device, window=window)
        places = torch.arange(tokens, device=places.device)
        return ExchangedHeads(group=self.group, rank=self.rank, places=places, mask=mask).attend

    def seen(
        self,
        documents: Documents | None,
        part: range,
        dtype: torch.dtype,
        device: torch.device,
        *,
        window: int | None = None,
    ) -> Mask | MaskedKernel | None:
        """Returns what the queries of a stretch see of the keys up to the last of them."""
        known = None if documents is None else documents[:, : part.stop]
        where: dict[str, Any] = {"first": part.start, "keys": part.stop, "device": device, "window": window}
        if self.kernel_of is not None:
            return self.kernel_of(known, **where)
        mask, alibi = seen_tokens(known, dtype, **where), self.alibi
        if alibi is None:
            return mask
        if self.way == "ulysses":
            heads = len(alibi.heads) // self.ranks
            alibi = alibi.part(range(self.rank * heads, (self.rank + 1) * heads))
        queries = torch.arange(part.start, part.stop, device=device)[None]
        return alibi.mask(mask, queries, keys=part.stop, dtype=dtype)


def stretches(way: ContextWay, tokens: int, *, rank: int, ranks: int) -> list[range]:
    """Returns a rank's parts of a sequence, in order.

    A late token attends to more than an early one: where ranks keep their queries (``gather``), each has a stretch from
    the front and the one as far from the end, so that all have the same work. Where they exchange heads they have it
    anyhow.
    """
    if way == "ulysses":
        size = tokens // ranks
        return [range(rank * size, (rank + 1) * size)]
    size, last = tokens // (2 * ranks), 2 * ranks - 1 - rank
    return [range(place * size, (place + 1) * size) for place in (rank, last)]


class _Stretch:
    """Neighbouring queries: where they stand, and what they see of the keys up to the last of them."""

    def __init__(self, part: range, mask: Mask | MaskedKernel | None, device: torch.device) -> None:
        self.places = torch.arange(part.start, part.stop, device=device)
        self.stop, self.mask = part.stop, mask


@dataclass(frozen=True, kw_only=True)
class GatheredKeys:
    """Every rank gathers the keys and values of all, and keeps its queries."""

    group: ProcessGroup
    parts: Sequence[_Stretch]

    def attend(
        self,
        query: Queries,
        key: Keys,
        value: Keys,
        kernel: AttentionKernel,
        *,
        draw: Draw | None,
        layer: int,
        cap: float | None = None,
    ) -> Queries:
        """Returns the mixed values of this rank's tokens, its two stretches one after the other."""
        keys, values = self._whole(torch.stack((key, value)))
        mixed = []
        for queries, part in zip(query.chunk(2, dim=2), self.parts, strict=True):
            mix = None if draw is None else draw.mix(layer, queries=part.places)
            seen = keys[:, :, : part.stop], values[:, :, : part.stop]
            mixed.append(attend(queries, *seen, part.mask, kernel, mix=mix, cap=cap))
        return torch.cat(mixed, dim=2)

    def _whole(self, here: Float[Tensor, "2 batch kv_heads seq head"]) -> Float[Tensor, "2 batch kv_heads whole head"]:
        """Returns keys and values of all ranks in the order of the sequence: fronts forth, ends back."""
        fronts, ends = _Gathered.apply(here, self.group).chunk(2, dim=-2)
        return torch.cat([*fronts.unbind(0), *reversed(ends.unbind(0))], dim=-2)


@dataclass(frozen=True, kw_only=True)
class ExchangedHeads:
    """Every rank exchanges its tokens' heads for some heads of all tokens (DeepSpeed-Ulysses, arXiv 2309.14509).

    Key heads that are fewer than the ranks are sent to several of them.
    """

    group: ProcessGroup
    rank: int
    places: Int[Tensor, " whole"]
    mask: Mask | MaskedKernel | None

    def attend(
        self,
        query: Queries,
        key: Keys,
        value: Keys,
        kernel: AttentionKernel,
        *,
        draw: Draw | None,
        layer: int,
        cap: float | None = None,
    ) -> Queries:
        """Returns the mixed values of this rank's tokens."""
        ranks = self.group.size()
        if key.shape[1] < ranks:
            key, value = (x.repeat_interleave(ranks // key.shape[1], dim=1) for x in (key, value))
        each = [x.unflatten(1, (ranks, -1)) for x in (query, key, value)]
        heads = [x.shape[2] for x in each]
        # Its heads of each rank's tokens: the parts of a sequence in order.
        parts = _Exchanged.apply(torch.cat(each, dim=2).transpose(0, 1), self.group)
        queries, keys, values = parts.permute(1, 2, 0, 3, 4).flatten(2, 3).split(heads, dim=1)
        mix = None if draw is None else draw.mix(layer, queries=self.places, heads_before=self.rank * heads[0])
        mixed = attend(queries, keys, values, self.mask, kernel, mix=mix, cap=cap)
        back: Tensor = _Exchanged.apply(mixed.unflatten(2, (ranks, -1)).permute(2, 0, 1, 3, 4), self.group)
        return back.transpose(0, 1).flatten(1, 2)


class _Gathered(torch.autograd.Function):
    """The parts of all ranks, ``[ranks, *part]``; backward: their gradients, added up over the ranks."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        whole = part.new_empty(group.size() * part.shape[0], *part.shape[1:])
        if part.numel():  # an empty micro batch is empty on all ranks of the axis
            _ALL_GATHER(whole, part.contiguous(), group=group)
        return whole.unflatten(0, (group.size(), -1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        part = grad.new_empty(grad.shape[1:])
        if part.numel():
            _REDUCE_SCATTER(part, grad.flatten(0, 1).contiguous(), group=ctx.group)
        return part, None


class _Exchanged(torch.autograd.Function):
    """Row ``i`` of this rank for its own row of rank ``i``, ``[ranks, ...]``; backward is the same exchange."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return _exchanged(rows, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        return _exchanged(grad, ctx.group), None


def _exchanged(rows: Tensor, group: ProcessGroup) -> Tensor:
    received = torch.empty_like(rows, memory_format=torch.contiguous_format)
    if rows.numel():
        dist.all_to_all_single(received, rows.contiguous(), group=group)
    return received


def division_of(mesh: Mesh) -> Division:
    """Returns how a mesh with an axis ``cp`` divides sequences."""
    axis = mesh.axis("cp")
    assert axis is not None
    return Division(way=mesh.parallel.context, group=axis.get_group(), rank=mesh.index("cp"), ranks=mesh.size("cp"))


def divide(network: Network, mesh: Mesh) -> None:
    """Lets a network's attention exchange with the ranks that have other parts of its sequences.

    Raises:
        RecipeError: the network is no decoder.
    """
    if not isinstance(network, Decoder):
        raise RecipeError(
            "the sequences of this network cannot be divided",
            where="train.exec.layout",
            seen=type(network).__name__,
            expected=f"a {Decoder.__name__}",
            fix="set cp=1",
        )
    division = replace(division_of(mesh), kernel_of=network.masked_kernel_of, alibi=network.alibi)
    network.context_of, network.context_ranks = division.context, division.ranks
