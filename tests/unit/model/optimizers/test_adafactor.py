"""Adafactor against transformers', which is another implementation, in fp64."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.tensor import DTensor, Shard
from transformers.optimization import Adafactor as Reference

from trainwright.model.optimizers.adafactor import Adafactor

STEPS = 10


def tensor(*shape, seed=0):
    return torch.nn.Parameter(torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("shape", [(7, 5), (3, 1), (6,), (2, 4, 5)])
@pytest.mark.parametrize("clip_threshold", [0.1, 1.0])
def test_ten_steps_are_those_of_transformers(shape, clip_threshold):
    ours, theirs = tensor(*shape), tensor(*shape)
    mine = Adafactor([ours], lr=0.03, clip_threshold=clip_threshold, weight_decay=0.1)
    other = Reference(
        [theirs],
        lr=0.03,
        eps=(1e-30, 1e-3),
        clip_threshold=clip_threshold,
        weight_decay=0.1,
        scale_parameter=False,
        relative_step=False,
    )
    for step in range(STEPS):
        gradient = tensor(*shape, seed=step + 1).detach() * (1 + step)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        other.step()
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def test_its_state_is_a_row_and_a_column():
    matrix, vector = tensor(7, 5), tensor(6)
    optimizer = Adafactor([matrix, vector], lr=0.1)
    for each in (matrix, vector):
        each.grad = torch.ones_like(each)
    optimizer.step()
    sizes = {name: tuple(value.shape) for name, value in optimizer.state[matrix].items() if name != "step"}
    assert sizes == {"row": (7, 1), "column": (1, 5)}
    assert optimizer.state[vector]["square"].shape == (6,)


def test_rows_of_a_matrix_alone_are_refused(four_ranks):
    part = DTensor.from_local(torch.zeros(3, 5), four_ranks, [Shard(0)], run_check=False)
    shard = torch.nn.Parameter(part)
    shard.grad = DTensor.from_local(torch.ones(3, 5), four_ranks, [Shard(0)], run_check=False)
    with pytest.raises(ValueError, match=r"needs whole matrices, and has \(3, 5\) of a larger one"):
        Adafactor([shard], lr=0.1).step()
