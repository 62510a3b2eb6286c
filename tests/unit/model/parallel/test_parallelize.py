"""What each rank keeps of a network; that it trains as one process does is held by ``tests/parallel``."""

from __future__ import annotations

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.tiny_models import decoder
from trainwright.model.parallel.parallelize import parallelize, sharded_modules
from trainwright.runtime.mesh import ALONE, mesh_of
from trainwright.spec.parts.experts import Experts
from trainwright.spec.workload import ParallelPlan


@pytest.fixture
def rank_two_of_four():
    dist.init_process_group("fake", store=FakeStore(), rank=2, world_size=4)
    yield
    dist.destroy_process_group()


def test_alone_a_network_stays_as_it_is() -> None:
    network = decoder()
    parallelize(network, ALONE, compiled=False)
    assert not sharded_modules(network)
    assert not any(isinstance(parameter, DTensor) for parameter in network.parameters())


@pytest.mark.parametrize(("layout", "parts"), [({"dp_shard": 4}, 4), ({"dp_replicate": 2, "dp_shard": 2}, 2)])
def test_a_rank_keeps_its_rows_of_every_parameter(rank_two_of_four, layout: dict[str, int], parts: int) -> None:
    whole = dict(decoder().named_parameters())
    network = decoder()
    mesh = mesh_of(ParallelPlan(**layout), "cpu")
    parallelize(network, mesh, compiled=False)
    assert len(sharded_modules(network)) == len(network.blocks) + 1
    assert [name for name, _ in network.named_parameters()] == list(whole)
    place = mesh.index("dp_shard")
    for name, parameter in network.named_parameters():
        assert isinstance(parameter, DTensor)
        each = math.ceil(whole[name].shape[0] / parts)
        assert torch.equal(parameter.to_local(), whole[name][place * each : (place + 1) * each])


def test_replicas_keep_everything(rank_two_of_four) -> None:
    network = decoder()
    parallelize(network, mesh_of(ParallelPlan(dp_replicate=4), "cpu"), compiled=False)
    for name, parameter in network.named_parameters():
        assert isinstance(parameter, DTensor)
        assert torch.equal(parameter.to_local(), dict(decoder().named_parameters())[name])


@pytest.mark.parametrize(("ep", "experts"), [(2, range(2)), (4, range(2, 3))])
def test_a_rank_keeps_its_experts_and_shares_them_with_those_that_have_the_same(rank_two_of_four, ep, experts) -> None:
    mixed = {"experts": Experts(count=4, active=2, ffn_width=24, bias=True)}
    whole = dict(decoder(**mixed).named_parameters())
    network = decoder(**mixed)
    cuts = parallelize(network, mesh_of(ParallelPlan(dp_shard=4, ep=ep), "cpu"), compiled=False)
    assert sorted(cuts) == sorted(name for name in whole if ".ffn." in name and "router" not in name)
    for name, cut in cuts.items():
        part = network.get_parameter(name)
        mine = whole[name][experts.start : experts.stop].chunk(4 // ep)[1 if ep == 2 else 0]
        assert isinstance(part, DTensor) and torch.equal(part.to_local(), mine), name
        assert cut.whole == whole[name].shape and cut.parts[cut.rank] == experts


def test_of_experts_that_ranks_do_not_divide_each_has_some_rows(rank_two_of_four) -> None:
    mixed = {"experts": Experts(count=6, active=2, ffn_width=24)}
    whole = dict(decoder(**mixed).named_parameters())
    network = decoder(**mixed)
    parallelize(network, mesh_of(ParallelPlan(dp_shard=4), "cpu"), compiled=False)
    for name, value in whole.items():
        part = network.get_parameter(name)
        assert isinstance(part, DTensor)
        assert torch.equal(part.to_local(), value.chunk(4, 1 if value.ndim == 3 else 0)[2]), name
