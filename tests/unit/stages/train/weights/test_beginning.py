"""A network begins with the same bits whole and shared, and no process has more of it at once than one tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from fixtures import tiny_models as tiny
from trainwright.core.errors import TrainingError
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.runtime.cuts import cut_of
from trainwright.runtime.mesh import mesh_of
from trainwright.runtime.norms import local
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.ranks.world import world_of
from trainwright.stages.train.weights.beginning import Beginning, fill, without_memory
from trainwright.stages.train.world import ALONE

CPU = torch.device("cpu")
RANKS = 4


class Largest(TorchDispatchMode):
    """Sees the bytes of the largest tensor that is made within."""

    size_bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else (result,):
            if isinstance(each, Tensor) and not each.is_meta:
                self.size_bytes = max(self.size_bytes, each.untyped_storage().nbytes())
        return result


@pytest.fixture
def four_ranks() -> Iterator[None]:
    """Rank 2 of four that are not there."""
    dist.init_process_group("fake", store=FakeStore(), rank=2, world_size=RANKS)
    yield
    dist.destroy_process_group()


def begun(**changes) -> Beginning:
    with without_memory():
        network = build_network(tiny.spec(**changes))
    return Beginning(network=network, values=network.initial(7), new_head=None)


def whole(**changes) -> Network:
    network = build_network(tiny.spec(**changes))
    network.initialise(7)
    return network


def test_parameters_have_no_memory_until_they_are_filled_and_buffers_keep_their_values() -> None:
    beginning, expected = begun(), whole()
    assert all(parameter.is_meta for parameter in beginning.network.parameters())
    buffers, real = dict(beginning.network.named_buffers()), dict(expected.named_buffers())
    assert buffers.keys() == real.keys() and buffers
    network = beginning.fill(CPU)
    for name, buffer in network.named_buffers():
        assert torch.equal(buffer, real[name]), name
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, expected.get_parameter(name)), name
        assert parameter.requires_grad


def test_modules_that_share_a_parameter_still_do() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(3, 2)
            self.head = torch.nn.Linear(2, 3, bias=False)
            self.head.weight = self.table.weight

    with without_memory():
        tied = Tied()
    assert tied.head.weight is tied.table.weight
    assert not torch.nn.Linear(2, 2).weight.is_meta, "outside all is as ever"


@pytest.mark.parametrize(
    "layout",
    [
        {"dp_shard": 4},
        {"dp_replicate": 2, "dp_shard": 2, "zero_stage": 2},
        {"tp": 4},
        {"tp": 2, "dp_shard": 2},
        {"pp": 2, "dp_shard": 2},
        {"cp": 2, "tp": 2},
    ],
    ids=str,
)
def test_a_rank_begins_with_its_part_of_what_one_process_has(four_ranks, layout) -> None:
    shape = {"layers": 4, "width": 32, "heads": 4, "kv_heads": 4}
    parallel = ParallelPlan(**layout)
    world = world_of(mesh_of(parallel, "cpu"), batch_sequences=4)
    beginning, expected = begun(**shape), dict(whole(**shape).named_parameters())
    world.share(beginning.network, compiled=False)
    network = beginning.fill(CPU, world)
    cuts = 0
    for name, parameter in network.named_parameters():
        size, begins = world.placement(name, parameter)
        part = local(parameter)
        assert size == tuple(expected[name].shape)
        where = tuple(slice(at, at + length) for at, length in zip(begins, part.shape, strict=True))
        assert torch.equal(part, expected[name][where]), name
        cuts += cut_of(parameter) is not None
    assert bool(cuts) == (parallel.tp > 1)


def test_a_rank_never_has_more_than_one_whole_tensor(four_ranks) -> None:
    world = world_of(mesh_of(ParallelPlan(dp_shard=RANKS), "cpu"), batch_sequences=4)
    shape = {"layers": 8, "width": 64, "heads": 4, "kv_heads": 4}
    with Largest() as largest:
        beginning = begun(**shape)
        world.share(beginning.network, compiled=False)
        network = beginning.fill(CPU, world)
    sizes = [value.numel() * value.element_size() for value in whole(**shape).parameters()]
    assert largest.size_bytes == max(sizes)
    kept = sum(local(parameter).numel() * 4 for parameter in network.parameters())
    assert kept <= sum(sizes) / RANKS * 1.01


def test_a_parameter_without_a_first_value_is_named() -> None:
    beginning = begun()
    values = [each for each in beginning.values if each[0] != "blocks.1.ffn.up.weight"]
    with pytest.raises(TrainingError, match=r"a parameter has no first value \(seen blocks\.1\.ffn\.up\.weight"):
        replace(beginning, values=values).fill(CPU)


def test_what_a_pipeline_rank_has_not_is_passed_over() -> None:
    network = whole(layers=2)
    before = network.get_parameter("blocks.0.ffn.up.weight").clone()
    fill(network, [("blocks.7.ffn.up.weight", torch.zeros(3)), ("blocks.0.ffn.up.weight", before + 1)], ALONE)
    assert torch.equal(network.get_parameter("blocks.0.ffn.up.weight"), before + 1)


def test_what_has_memory_keeps_its_values_on_its_way_to_a_device() -> None:
    network = whole()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    ALONE.give_memory(network, CPU)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
