"""Norm and clipping of one process are torch's; those of several are held to it by ``tests/parallel``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.runtime import norms
from trainwright.runtime.cuts import Cut, mark
from trainwright.runtime.mesh import ALONE, Mesh
from trainwright.runtime.norms import as_part_of, clip, global_norm
from trainwright.spec.workload import ParallelPlan


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    made = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.zeros(2))]
    for parameter in made[:2]:
        parameter.grad = torch.randn_like(parameter)
    return made


@pytest.mark.parametrize("largest", [None, 0.1, 100.0])
def test_alone_it_is_torchs(largest: float | None) -> None:
    ours, theirs = parameters(), parameters()
    norm = clip(ours, largest, ALONE)
    truth = torch.nn.utils.clip_grad_norm_(theirs, torch.inf if largest is None else largest)
    torch.testing.assert_close(norm, truth)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad)


def test_no_gradient_has_no_norm() -> None:
    nothing: list[Tensor] = []
    assert float(global_norm(nothing, ALONE)) == 0.0


def test_a_gradient_that_is_not_finite_says_so() -> None:
    (parameter, *_) = parameters()
    assert parameter.grad is not None
    parameter.grad[0, 0] = torch.nan
    assert clip([parameter], 1.0, ALONE).isnan()


def test_what_another_stage_counts_is_scaled_and_not_counted() -> None:
    ours, theirs = parameters(), parameters()
    norm = clip(ours, 0.1, ALONE, again=[ours[1]])
    assert theirs[0].grad is not None
    torch.testing.assert_close(norm, theirs[0].grad.norm())
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        assert other.grad is not None
        torch.testing.assert_close(one.grad, other.grad * 0.1 / (norm + 1e-6))


PARTS = (range(2), range(2), range(2, 4), range(2, 4))
GROUP: Any = SimpleNamespace(group_name="ranks")


def part(rank: int, *, summed: bool = True, parts: tuple[range, ...] = PARTS) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(2, 3))
    parameter.grad = torch.full((2, 3), float(rank + 1))
    mark(parameter, Cut(group=GROUP, rank=rank, whole=torch.Size((4, 3)), dim=0, parts=parts, summed=summed))
    return parameter


def test_gradients_of_copies_are_added_up_over_those_who_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [[part(rank), part(rank, summed=False), nn.Parameter(torch.ones(2))] for rank in range(4)]
    sent: list[Tensor] = []

    def hear(value: Tensor, group: str) -> Tensor:
        assert group == "ranks"
        sent.append(value)
        return value

    monkeypatch.setattr(norms, "added", hear)
    for parameters in ranks:
        norms.add_copies(parameters)
    total = torch.stack(sent).sum(dim=0)
    monkeypatch.setattr(norms, "added", lambda value, group: total)
    for rank, parameters in enumerate(ranks):
        norms.add_copies(parameters)
        summed, alone, _ = (parameter.grad for parameter in parameters)
        assert summed is not None
        assert torch.equal(summed, torch.full((2, 3), 3.0 if rank < 2 else 7.0))
        assert torch.equal(alone, torch.full((2, 3), rank + 1.0))


def test_nothing_is_sent_where_nothing_is_copied() -> None:
    norms.add_copies([part(0, summed=False), nn.Parameter(torch.ones(2))])


def test_a_copy_counts_once_and_a_part_fully() -> None:
    mesh = Mesh(parallel=ParallelPlan(tp=4))  # without a process group its sum is this rank's share
    copied, cut, whole = part(0), part(0, parts=(range(1), range(1, 2), range(2, 3), range(3, 4))), part(0)
    vars(whole).pop("cut")
    assert float(global_norm([copied], mesh)) == pytest.approx((6 / 2) ** 0.5)
    assert float(global_norm([cut], mesh)) == pytest.approx(6**0.5)
    assert float(global_norm([whole], mesh)) == pytest.approx((6 / 4) ** 0.5)


@pytest.fixture
def second_of_two() -> Iterator[DeviceMesh]:
    """The mesh of a rank whose neighbour is not there."""
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


@pytest.mark.parametrize("shape", [(5, 4), (5, 3, 2), (5,)])
def test_a_part_lies_where_that_of_another_tensor_does(second_of_two, shape) -> None:
    like = distribute_tensor(torch.arange(20.0).reshape(5, 4), second_of_two, [Shard(0)], src_data_rank=None)
    whole = torch.arange(float(math.prod(shape))).reshape(shape)
    here = as_part_of(like, whole[3:], shape)
    truth = distribute_tensor(whole, second_of_two, [Shard(0)], src_data_rank=None)
    assert (here.shape, here.stride(), here.placements) == (whole.shape, whole.stride(), truth.placements)
    assert torch.equal(here.to_local(), truth.to_local())
