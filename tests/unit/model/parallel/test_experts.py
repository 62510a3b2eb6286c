"""Where rows go between ranks, held to a count by hand; that it trains as one process does is ``tests/parallel``'s."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.model.experts.mixture import Mixture
from trainwright.model.parallel.experts import DividedMixture, way_of
from trainwright.spec.parts.experts import Experts

COUNTS = torch.tensor([[3, 0, 2, 1], [1, 2, 0, 0]])
"""Rows of four experts on each of two ranks, of which each has two experts."""
ROWS = [["a0", "a0", "a0", "a2", "a2", "a3"], ["b0", "b1", "b1"]]


@pytest.mark.parametrize(
    ("rank", "sent", "received", "sorted_rows"),
    [
        (0, [3, 3], [3, 3], ["a0", "a0", "a0", "b0", "b1", "b1"]),
        (1, [3, 0], [3, 0], ["a2", "a2", "a3"]),
    ],
)
def test_rows_go_to_their_experts_in_the_order_of_ranks(monkeypatch, rank, sent, received, sorted_rows) -> None:
    def exchange(into: torch.Tensor, from_here: torch.Tensor, group: dist.ProcessGroup) -> None:
        assert torch.equal(from_here, COUNTS[rank].view(2, 2))
        into.copy_(torch.stack([counts.view(2, 2)[rank] for counts in COUNTS]))

    monkeypatch.setattr(dist, "all_to_all_single", exchange)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    way = way_of(COUNTS[rank], len(ROWS[rank]), dist.group.WORLD)
    dist.destroy_process_group()
    assert (way.sent, way.received) == (sent, received)
    own = {f"{2 * rank}", f"{2 * rank + 1}"}
    arrived = [row for rows in ROWS for row in rows if row[1] in own]
    assert [arrived[place] for place in way.order] == sorted_rows
    assert way.places[way.order].tolist() == list(range(len(arrived)))
    assert way.counts.tolist() == [sum(row[1] == expert for row in arrived) for expert in sorted(own)]


@pytest.fixture
def alone(tmp_path):
    """A group of one process, in which every exchange gives back what was sent."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("sequences", [2, 0])
def test_one_rank_that_has_all_experts_computes_what_a_mixture_does(tiny, alone, sequences) -> None:
    experts = Experts(count=4, active=2, ffn_width=12, bias=True)
    plain = Mixture(replace(tiny.spec("llama"), experts=experts)).double()
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    width = plain.router.weight.shape[1]
    x = torch.randn(sequences, 6, width, dtype=torch.float64)

    def gradients() -> list[torch.Tensor]:
        plain.zero_grad()
        given = x.clone().requires_grad_()
        y = plain(given)
        y.square().sum().backward()
        return [y.detach(), given.grad, *(parameter.grad for parameter in plain.parameters())]

    truth = gradients()
    plain.__class__ = DividedMixture
    assert isinstance(plain, DividedMixture)
    plain.group = alone
    for ours, theirs in zip(gradients(), truth, strict=True):
        assert torch.equal(ours, theirs)
