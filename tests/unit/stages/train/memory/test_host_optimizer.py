"""Updates on the host: the bits of updates where the weights are, shard by shard, and from a checkpoint on."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.core.errors import RecipeError
from trainwright.model.decoder import Decoder
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import AdamWAloneSection, MuonSection
from trainwright.stages.train.memory.host_optimizer import HostOptimizers, host_optimizers
from trainwright.stages.train.optimizer import Optimizers


def network_of():
    network = Decoder(ModelSection(layers=2, width=32, heads=4).spec(vocabulary=50))
    network.initialise(1)
    return network


def steps(network, optimizers, first, last):
    for step in range(first, last):
        for number, parameter in enumerate(network.parameters()):
            generator = torch.Generator().manual_seed(100 * step + number)
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizers.step(0.5)
        optimizers.zero_grad()
        assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("moments", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("kernel", ["fused", "foreach"])
def test_weights_and_state_are_the_same_bits(moments, kernel):
    section = AdamWAloneSection(moments=moments)
    here, there = network_of(), network_of()
    plain, moved = Optimizers(here, section, kernel), HostOptimizers(there, section, kernel)
    steps(here, plain, 0, 3)
    steps(there, moved, 0, 3)
    assert all(map(torch.equal, here.parameters(), there.parameters()))
    mine, theirs = dict(moved.tensors()), dict(plain.tensors())
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert not list(moved.on_device())
    assert list(plain.on_device())


def test_a_checkpoint_goes_on_with_either(tmp_path):
    section = AdamWAloneSection()
    whole = network_of()
    steps(whole, Optimizers(whole, section), 0, 4)
    begun = network_of()
    first = HostOptimizers(begun, section)
    steps(begun, first, 0, 2)
    state = {name: tensor.clone() for name, tensor in first.tensors()}
    for make in (Optimizers, HostOptimizers):
        network = network_of()
        network.load_state_dict(begun.state_dict())
        optimizers = make(network, section)
        optimizers.load({name: tensor.clone() for name, tensor in state.items()})
        steps(network, optimizers, 2, 4)
        assert all(map(torch.equal, whole.parameters(), network.parameters()))


def test_a_parameter_without_gradient_stays():
    network = network_of()
    optimizers = HostOptimizers(network, AdamWAloneSection())
    before = network.norm.weight.detach().clone()
    network.embedding.grad = torch.ones_like(network.embedding)
    optimizers.step(1.0)
    assert torch.equal(network.norm.weight, before)
    assert not any(name.startswith("norm.") for name, _ in optimizers.tensors())


def test_a_shard_leaves_and_comes_back_as_a_shard():
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        network, whole = network_of(), network_of()
        rows = network.embedding.detach()[25:].clone()
        network.embedding = nn.Parameter(DTensor.from_local(rows, mesh, [Shard(0)], run_check=False))
        optimizers, plain = HostOptimizers(network, AdamWAloneSection()), Optimizers(whole, AdamWAloneSection())
        gradient = torch.randn(50, 32)
        whole.embedding.grad = gradient.clone()
        network.embedding.grad = DTensor.from_local(gradient[25:].clone(), mesh, [Shard(0)], run_check=False)
        optimizers.step(1.0)
        plain.step(1.0)
        assert torch.equal(network.embedding.to_local(), whole.embedding[25:])
        moment = dict(optimizers.tensors())["embedding.exp_avg"]
        assert isinstance(moment, DTensor)
        assert moment.shape == (50, 32)
        assert torch.equal(moment.to_local(), dict(plain.tensors())["embedding.exp_avg"][25:])
    finally:
        dist.destroy_process_group()


def test_what_cannot_be_is_refused():
    with pytest.raises(RecipeError, match=r"train\.exec\.layout\.offload=none"):
        host_optimizers(network_of(), AdamWAloneSection(), "fused")
    with pytest.raises(RecipeError, match="only AdamW updates on the host"):
        HostOptimizers(network_of(), MuonSection())
