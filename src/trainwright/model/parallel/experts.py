"""Expert parallelism: each rank along an axis has some experts of a layer, and tokens go where theirs are.

Shape legend: ``rows`` (copies of this rank's tokens, sorted by expert), ``received`` (rows of all ranks that chose this
rank's experts), ``experts`` (of the layer), ``own`` (this rank's experts), ``ranks``, ``width``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from trainwright.model.experts.mixture import Mixture
from trainwright.model.experts.products import has_no_values, reordered
from trainwright.model.experts.update import mixtures
from trainwright.model.network import Network
from trainwright.runtime.cuts import Cut
from trainwright.runtime.mesh import ExpertMesh

MATRICES = ("gate", "up", "down")
"""The layers of a mixture that have one matrix for each expert."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """Where the rows of one pass go.

    Attributes:
        sent: rows for each rank.
        received: rows from each rank.
        order: which received row stands in each place when they are sorted by expert; of one expert those of the first
            rank come first, as its tokens do in the batch.
        places: in which place each received row stands, the inverse.
        counts: received rows of each expert here.
    """

    sent: list[int]
    received: list[int]
    order: Int[Tensor, " received"]
    places: Int[Tensor, " received"]
    counts: Int[Tensor, " own"]


class DividedMixture(Mixture):
    """A mixture of whose experts some are here: rows are sent to the ranks of their experts, and results come back.

    Every rank routes its own tokens, and no row is dropped: a rank receives as many as chose its experts (GShard,
    Lepikhin et al., 2020, arXiv 2006.16668, without its capacity).
    """

    group: ProcessGroup

    @torch.compiler.disable  # how many rows go where are numbers of this very batch
    def passed(self, rows: Float[Tensor, "rows width"], counts: Int[Tensor, " experts"]) -> Float[Tensor, "rows width"]:
        """Returns what each row's expert makes of it, wherever that is; all ranks along the axis call it together."""
        way = way_of(counts, rows.shape[0], self.group)
        received = _Exchanged.apply(rows, way.sent, way.received, self.group)
        results = super().passed(reordered(received, way.order, way.places), way.counts)
        back: Tensor = _Exchanged.apply(reordered(results, way.places, way.order), way.received, way.sent, self.group)
        return back


class _Exchanged(torch.autograd.Function):
    """Some rows for each rank for those that each has for this one; backward is the exchange the other way."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
        ctx.way = received, sent, group
        return exchanged(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return exchanged(grads[0], *ctx.way), None, None, None


def exchanged(rows: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
    """Returns the rows that all ranks have for this one, in the order of ranks; also where these are none."""
    here = rows.new_empty(sum(received), *rows.shape[1:])
    dist.all_to_all_single(here, rows.contiguous(), received, sent, group=group)
    return here


def way_of(counts: Int[Tensor, " experts"], rows: int, group: ProcessGroup) -> Way:
    """Returns where rows go; the ranks tell each other how many they send, and wait for that.

    Args:
        counts: rows of each expert of the layer.
        rows: their sum.
        group: the ranks; each has as many neighbouring experts.
    """
    ranks = group.size()
    by_rank = counts.unflatten(0, (ranks, -1))
    from_rank = torch.empty_like(by_rank)
    dist.all_to_all_single(from_rank, by_rank.contiguous(), group=group)
    if has_no_values(counts):  # all are as full
        even = [(place + 1) * rows // ranks - place * rows // ranks for place in range(ranks)]
        order = torch.arange(rows, device=counts.device)
        return Way(sent=even, received=even, order=order, places=order, counts=from_rank.sum(0))
    sent, received = torch.stack([by_rank.sum(1), from_rank.sum(1)]).tolist()
    own = torch.arange(from_rank.shape[1], device=counts.device).repeat(ranks)
    order = own.repeat_interleave(from_rank.flatten(), output_size=sum(received)).argsort(stable=True)
    places = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    return Way(sent=sent, received=received, order=order, places=places, counts=from_rank.sum(0))


def divide_experts(network: Network, experts: ExpertMesh) -> dict[str, Cut]:
    """Leaves a network the experts of this rank, in place; returns their cuts by name."""
    group, rank = experts.apart.get_group(), experts.apart.get_local_rank()
    network.expert_ranks = group.size()
    cuts: dict[str, Cut] = {}
    for layer, mixture in mixtures(network).items():
        each = mixture.experts.count // group.size()
        parts = tuple(range(place * each, (place + 1) * each) for place in range(group.size()))
        for kind in MATRICES:
            linear = mixture.get_submodule(kind)
            for last, whole in list(linear.named_parameters()):
                cut = Cut(group=group, rank=rank, whole=whole.shape, dim=0, parts=parts)
                part = nn.Parameter(cut.take(whole.detach()), requires_grad=whole.requires_grad)
                linear.register_parameter(last, part)
                cuts[f"blocks.{layer}.ffn.{kind}.{last}"] = cut
        mixture.__class__ = DividedMixture
        assert isinstance(mixture, DividedMixture)
        mixture.group = group
    return cuts


def matrices_of(network: Network) -> Iterator[nn.Module]:
    """Yields the layers of all mixtures that are shared by the ranks with the same experts alone.

    Each is gathered by itself: torch gathers several modules together where they lie under one.
    """
    for mixture in mixtures(network).values():
        yield from map(mixture.get_submodule, MATRICES)
