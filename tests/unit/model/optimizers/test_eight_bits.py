"""AdamW with eight-bit moments against torch's own, its table by brute force, and shards against the whole."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch.distributed.tensor import DTensor, Shard

from trainwright.model.decoder import Decoder
from trainwright.model.optimizers.eight_bits import BLOCK, EightBitAdamW, decoded, encoded, scales_of, table
from trainwright.planner.counts.parameters import MOMENT_BYTES
from trainwright.runtime.cuts import Cut, mark
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.train import TrainSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.testing.contract_optimizer import OptimizerContract

SETTINGS: dict[str, Any] = {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}


class TestContract(OptimizerContract):
    optimizer = "adamw"
    keys: ClassVar[dict[str, Any]] = {"lr": 0.01, "moments": "int8"}


def matrix(rows=8, columns=300, seed=0):
    return torch.nn.Parameter(torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)))


def test_tables_are_255_distinct_numbers_that_are_denser_towards_zero():
    for signed in (True, False):
        numbers = table(signed=signed)
        assert numbers.shape == (255,)
        gaps = numbers.diff()
        assert (gaps > 0).all()
        assert float(numbers[-1]) == 1.0
        positive = numbers[numbers >= 0]
        assert float(positive[0]) == 0.0
        assert positive.diff()[1:].max() < 0.9 / 64 * 1.01, "the largest gap: a cell of the highest power of ten"
    assert torch.equal(table(signed=True).flip(0).neg(), table(signed=True))


@pytest.mark.parametrize("signed", [True, False])
def test_a_number_becomes_one_of_its_neighbours_and_is_right_in_the_mean(signed):
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(4, 2 * BLOCK + 7, generator=generator)
    values = values if signed else values.square()
    scale = torch.stack([part.abs().amax(dim=1) for part in values.split(BLOCK, dim=1)], dim=1)
    numbers, total = table(signed=signed), torch.zeros_like(values)
    for key in range(400):
        codes, scales = encoded(values, key * 0x9E3779B97F4A7C15 % 2**64, signed=signed)
        assert torch.equal(scales, scale)
        kept = decoded(codes, scales, signed=signed)
        total += kept
        if key == 0:
            shares = values / scale.repeat_interleave(BLOCK, dim=1)[:, : values.shape[1]]
            for share, code in zip(shares.flatten().tolist()[:600], codes.flatten().tolist()[:600], strict=True):
                below = max(place for place, number in enumerate(numbers.tolist()) if number <= share or place == 0)
                assert code in (below, below + 1)
    gap = 0.9 / 64 * scale.repeat_interleave(BLOCK, dim=1)[:, : values.shape[1]]
    assert ((total / 400 - values).abs() < 5 * gap / 2 / 400**0.5 + 1e-6).all(), "five standard deviations"


def test_squares_above_zero_stay_there():
    values = torch.tensor([[0.0, 1e-30, 1.0]])
    kept = decoded(*encoded(values, 1, signed=False), signed=False)
    assert kept[0, 0] == 0.0
    assert 0 < kept[0, 1] < 1e-6
    zeros = torch.zeros(2, 5)
    assert torch.equal(decoded(*encoded(zeros, 1, signed=True), signed=True), zeros)


def test_the_first_step_is_that_of_adamw():
    ours, theirs = matrix(), matrix()
    mine, torchs = EightBitAdamW([ours], **SETTINGS), torch.optim.AdamW([theirs], **SETTINGS)
    ours.grad = theirs.grad = torch.randn(8, 300)
    mine.step()
    torchs.step()
    torch.testing.assert_close(ours.detach(), theirs.detach(), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("beta2", [0.95, 0.999])
def test_many_steps_stay_within_the_rounding_of_moments(beta2):
    """Of steps in the direction of a gradient with noise, over the way that AdamW went."""
    ours, theirs = matrix(), matrix()
    begun = ours.detach().clone()
    settings = SETTINGS | {"betas": (0.9, beta2), "weight_decay": 0.0}
    mine, torchs = EightBitAdamW([ours], **settings), torch.optim.AdamW([theirs], **settings)
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        ours.grad = theirs.grad = torch.randn(8, 300, generator=generator) + 0.5
        mine.step()
        torchs.step()
    way, apart = theirs.detach() - begun, (ours - theirs).detach()
    assert apart.norm() < 0.02 * way.norm()
    assert abs(float(apart.mean() / way.mean())) < 5e-3, "no drift"


def test_moments_take_the_bytes_that_a_plan_counts():
    """Of matrices; vectors, 0.1 % of a network, keep theirs in fp32."""
    section = TrainSection.model_validate({"optimizer": {"moments": "int8"}}).optimizer
    assert section.reduced_moments == "int8"
    network = Decoder(ModelSection(layers=2, width=256, heads=4).spec(vocabulary=512))
    network.initialise(1)
    optimizers = Optimizers(network, section)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step(1.0)
    kept = dict(optimizers.tensors())
    for name, parameter in network.named_parameters():
        held = sum(each.nbytes for key, each in kept.items() if key.startswith(f"{name}.exp"))
        columns = parameter.shape[-1]
        if parameter.ndim == 1:
            assert held == 8 * parameter.numel()
        elif columns % BLOCK == 0:
            assert held == 2 * MOMENT_BYTES["int8"] * parameter.numel()
    total = sum(each.nbytes for key, each in kept.items() if not key.endswith(".step"))
    count = sum(parameter.numel() for parameter in network.parameters())
    assert total == pytest.approx(2 * MOMENT_BYTES["int8"] * count, rel=0.02)


def test_a_shard_is_updated_as_the_same_rows_of_the_whole(four_ranks):
    whole = matrix(rows=10)
    part = DTensor.from_local(
        whole.detach()[3:6].clone(), four_ranks, [Shard(0)], run_check=False, shape=(10, 300), stride=(300, 1)
    )
    shard = torch.nn.Parameter(part)
    gradient = torch.randn(10, 300)
    whole.grad = gradient.clone()
    shard.grad = DTensor.from_local(
        gradient[3:6].clone(), four_ranks, [Shard(0)], run_check=False, shape=(10, 300), stride=(300, 1)
    )
    alone, ranked = EightBitAdamW([whole], **SETTINGS), EightBitAdamW([shard], **SETTINGS)
    alone.step()
    ranked.step()
    assert torch.equal(shard.to_local(), whole[3:6])
    scales = ranked.state[shard]["exp_avg_scale"]
    assert scales.shape == (10, 2)
    assert torch.equal(scales.to_local(), alone.state[whole]["exp_avg_scale"][3:6])
    mine = ranked.state[shard]["exp_avg"].to_local().int()
    assert (mine - alone.state[whole]["exp_avg"][3:6].int()).abs().max() <= 1, "one of the same neighbours"


def test_ranks_that_cut_blocks_are_refused(four_ranks):
    part = DTensor.from_local(torch.zeros(4, 100), four_ranks, [Shard(1)], run_check=False)
    with pytest.raises(ValueError, match="100 columns each, no multiple of the 256"):
        scales_of(part)


def test_a_part_of_a_cut_matrix_is_refused(four_ranks):
    part = matrix(rows=4)
    whole, parts = torch.Size((16, 300)), tuple(range(first, first + 4) for first in range(0, 16, 4))
    mark(part, Cut(group=four_ranks.get_group(), rank=1, whole=whole, dim=0, parts=parts))
    part.grad = torch.ones_like(part)
    with pytest.raises(ValueError, match="has no scales of its own"):
        EightBitAdamW([part], **SETTINGS).step()
