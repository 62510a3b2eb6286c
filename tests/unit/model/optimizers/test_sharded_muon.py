"""Muon over shared matrices gives the bits of Muon over whole ones, where the one rank has all of each."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from trainwright.model.muon import Muon
from trainwright.model.optimizers.sharded_muon import ShardedMuon

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
