"""AdamW with bf16 moments against torch's own, and what its rounding is in the mean."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.model.decoder import Decoder
from trainwright.model.optimizers.adamw import ReducedAdamW, rounded_at_random
from trainwright.model.optimizers.base import CHUNK_ELEMENTS
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.optimizer import AdamWAloneSection, AdamWSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.testing.contract_optimizer import OptimizerContract

SETTINGS = {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}


class TestContract(OptimizerContract):
    optimizer = "adamw"
    keys: ClassVar[dict[str, Any]] = {"lr": 0.01, "moments": "bf16"}


def parameters(size=300, seed=0):
    return torch.nn.Parameter(torch.randn(size, generator=torch.Generator().manual_seed(seed)))


def test_the_first_step_is_that_of_adamw():
    ours, theirs = parameters(), parameters()
    mine, torchs = ReducedAdamW([ours], **SETTINGS), torch.optim.AdamW([theirs], **SETTINGS)
    ours.grad = theirs.grad = torch.randn(300)
    mine.step()
    torchs.step()
    torch.testing.assert_close(ours.detach(), theirs.detach(), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("beta2", [0.95, 0.999])
def test_many_steps_stay_within_the_rounding_of_moments(beta2):
    """Of steps in the direction of a gradient with noise, over the way that AdamW went."""
    ours, theirs = parameters(2000), parameters(2000)
    begun = ours.detach().clone()
    settings = SETTINGS | {"betas": (0.9, beta2), "weight_decay": 0.0}
    mine, torchs = ReducedAdamW([ours], **settings), torch.optim.AdamW([theirs], **settings)
    generator = torch.Generator().manual_seed(1)
    for _ in range(400):
        ours.grad = theirs.grad = torch.randn(2000, generator=generator) + 0.5
        mine.step()
        torchs.step()
    way, apart = theirs.detach() - begun, (ours - theirs).detach()
    assert apart.norm() < 0.01 * way.norm()
    assert abs(float(apart.mean() / way.mean())) < 2e-3, "no drift"
    squares = mine.state[ours]["exp_avg_sq"].float() / torchs.state[theirs]["exp_avg_sq"]
    assert float(squares.mean()) == pytest.approx(1, abs=2e-3), "steps of 0.1 % are not lost"


def test_rounding_is_right_in_the_mean_and_to_one_of_the_neighbours():
    values = torch.rand(1 << 16, generator=torch.Generator().manual_seed(2)) * 3
    rounded = rounded_at_random(values, 12345).float()
    assert rounded_at_random(values, 12345).dtype == torch.bfloat16
    unit = 2.0 ** (values.log2().floor() - 7)
    assert ((rounded - values).abs() < unit).all()
    mean = float(((rounded - values) / unit).mean())
    assert abs(mean) < 5 / (12 * len(values)) ** 0.5 * 2, "five standard deviations of at most half a unit each"
    exact = torch.tensor([0.0, 1.0, 1.5, 2.0**-30])
    assert torch.equal(rounded_at_random(exact, 7).float(), exact)
    assert not torch.equal(rounded_at_random(values, 12346).float(), rounded)


def test_long_parameters_are_updated_in_every_part():
    ours, theirs = (parameters(2 * CHUNK_ELEMENTS + 5) for _ in range(2))
    ours.grad = theirs.grad = torch.ones_like(ours)
    ReducedAdamW([ours], **SETTINGS).step()
    torch.optim.AdamW([theirs], **SETTINGS).step()
    torch.testing.assert_close(ours.detach(), theirs.detach(), atol=1e-7, rtol=1e-6)


def test_a_recipe_asks_for_it_and_moments_take_four_bytes_a_parameter():
    section = TrainSection.model_validate({"optimizer": {"moments": "bf16"}}).optimizer
    assert section.reduced_moments == "bf16"
    assert AdamWAloneSection().reduced_moments is AdamWSection().reduced_moments is None
    network = Decoder(ModelSection(layers=2, width=32, heads=4).spec(vocabulary=50))
    network.initialise(1)
    optimizers = Optimizers(network, section)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step(1.0)
    kept = [tensor for name, tensor in optimizers.tensors() if not name.endswith(".step")]
    assert {tensor.dtype for tensor in kept} == {torch.bfloat16}
    assert sum(tensor.nbytes for tensor in kept) == 4 * sum(parameter.numel() for parameter in network.parameters())


def test_a_shard_is_updated_in_place():
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        mesh, whole = init_device_mesh("cpu", (2,)), parameters(300)
        shard = torch.nn.Parameter(DTensor.from_local(whole.detach()[150:].clone(), mesh, [Shard(0)], run_check=False))
        whole.grad = torch.randn(300)
        shard.grad = DTensor.from_local(whole.grad[150:].clone(), mesh, [Shard(0)], run_check=False)
        for parameter in (whole, shard):
            ReducedAdamW([parameter], **SETTINGS).step()
        assert torch.equal(shard.to_local(), whole[150:])
    finally:
        dist.destroy_process_group()
