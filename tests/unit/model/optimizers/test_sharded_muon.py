"""Muon over shared matrices gives the bits of Muon over whole ones, where the one rank has all of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from trainwright.model.muon import Muon
from trainwright.model.optimizers.sharded_muon import ShardedMuon
from trainwright.runtime.cuts import Cut, mark

GROUP: Any = SimpleNamespace(group_name="ranks")
SHAPES = [(8, 4), (4, 8), (6, 6), (8, 4)]


def test_shared_matrices_move_as_whole_ones(tmp_path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("dp_shard",))
        torch.manual_seed(0)
        whole = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
        shared = [nn.Parameter(distribute_tensor(each.detach().clone(), mesh, [Shard(0)])) for each in whole]
        settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
        ours, truth = ShardedMuon(shared, **settings), Muon(whole, **settings)
        for _ in range(3):
            for one, other in zip(shared, whole, strict=True):
                other.grad = torch.randn_like(other)
                one.grad = distribute_tensor(other.grad.clone(), mesh, [Shard(0)])
            ours.step()
            truth.step()
        for one, other in zip(shared, whole, strict=True):
            assert torch.equal(one.full_tensor(), other)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("shape", "dim"), [((8, 4), 0), ((8, 4), 1), ((4, 8), 0)])
def test_parts_of_a_matrix_move_as_the_whole_one(monkeypatch: pytest.MonkeyPatch, shape, dim) -> None:
    torch.manual_seed(0)
    whole, gradient = nn.Parameter(torch.randn(shape)), torch.randn(shape)
    momentum, half = 0.9, shape[dim] // 2
    ahead = torch.lerp(gradient, (1 - momentum) * gradient, momentum)
    monkeypatch.setattr(Cut, "gather", lambda cut, part: ahead.to(part.dtype))
    parts = (range(half), range(half, shape[dim]))
    cuts = [Cut(group=GROUP, rank=rank, whole=whole.shape, dim=dim, parts=parts) for rank in range(2)]
    moved = []
    for cut in cuts:
        part = nn.Parameter(cut.take(whole.detach()))
        part.grad = cut.take(gradient)
        mark(part, cut)
        ShardedMuon([part], lr=0.1, momentum=momentum, weight_decay=0.01).step()
        moved.append(part.detach())
    whole.grad = gradient
    Muon([whole], lr=0.1, momentum=momentum, weight_decay=0.01).step()
    assert torch.equal(torch.cat(moved, dim), whole)
