"""What is sent alone comes back; of nothing, nothing is sent. Several ranks are in ``tests/parallel``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.runtime.collectives import added, gathered, scattered, unmoved

NOBODY = "no such group"


@pytest.fixture
def alone(tmp_path) -> Iterator[str]:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


@pytest.fixture
def four() -> Iterator[str]:
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("sequences", [1, 3])
def test_alone_everything_stays(alone: str, dim: int, sequences: int) -> None:
    x = torch.randn(sequences, 4, 2)
    assert torch.equal(gathered(x, 1, alone, dim), x)
    assert torch.equal(scattered(x, 1, alone, dim), x)
    assert torch.equal(added(x, alone), x)
    assert torch.equal(added(x, alone, "max"), x)


@pytest.mark.parametrize("sequences", [1, 3])
def test_shapes_are_those_of_all_ranks_parts(four: str, sequences: int) -> None:
    assert gathered(torch.zeros(sequences, 4, 2), 4, four, 1).shape == (sequences, 16, 2)
    assert scattered(torch.zeros(sequences, 16, 2), 4, four, 1).shape == (sequences, 4, 2)


def test_nothing_is_sent_of_no_sequence() -> None:
    assert gathered(torch.zeros(0, 4, 2), 4, NOBODY, 1).shape == (0, 16, 2)
    assert scattered(torch.zeros(0, 16, 2), 4, NOBODY, 1).shape == (0, 4, 2)
    assert added(torch.zeros(0, 2), NOBODY).shape == (0, 2)


def test_unmoved_memory_is_no_view() -> None:
    x = torch.randn(4, 2)
    same = unmoved(x, 1, 8)
    assert same.data_ptr() == x.data_ptr()
    assert not same._is_view()  # noqa: SLF001  # what FSDP asks
