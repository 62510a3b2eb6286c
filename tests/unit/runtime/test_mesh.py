"""Each rank's place in a mesh, against counting; and sums over axes by ranks that are there."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.runtime import mesh as module
from trainwright.runtime.mesh import ALONE, AXES, everyone, joined, mesh_of
from trainwright.spec.workload import DATA_AXES, ParallelPlan

PLAN = ParallelPlan(pp=2, dp_replicate=3, dp_shard=2, tp=2)


@contextmanager
def group(rank: int, ranks: int) -> Iterator[None]:
    """A process group in which collectives send nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("rank", [0, 1, 7, 23])
def test_a_rank_knows_its_place_on_every_axis(rank: int) -> None:
    shape = tuple(getattr(PLAN, axis) for axis in AXES)
    with group(rank, math.prod(shape)):
        mesh = mesh_of(PLAN, "cpu")
        place = dict(zip(AXES, map(int, np.unravel_index(rank, shape)), strict=True))
        assert {axis: mesh.index(axis) for axis in AXES} == place
        assert mesh.index(*DATA_AXES) == place["dp_replicate"] * 2 + place["dp_shard"]
        assert (mesh.size(*DATA_AXES), mesh.ranks, mesh.rank, mesh.leads) == (6, 24, rank, rank == 0)
        along = mesh.axis("dp_replicate")
        assert along is not None
        others = [dict(place, dp_replicate=other) for other in range(3)]
        assert along.mesh.tolist() == [np.ravel_multi_index([each[a] for a in AXES], shape) for each in others]
        assert mesh.axis("cp") is None


@pytest.mark.parametrize(
    ("layout", "apart", "sharing"),
    [
        ({"dp_shard": 8, "ep": 2}, [4, 5], [1, 3, 5, 7]),
        ({"dp_shard": 8, "ep": 8}, [0, 1, 2, 3, 4, 5, 6, 7], [5]),
        ({"dp_replicate": 2, "dp_shard": 4, "ep": 2}, [4, 5], [[1, 3], [5, 7]]),
        ({"dp_replicate": 4, "dp_shard": 2, "ep": 4}, [4, 5, 6, 7], [[1], [5]]),
        ({"dp_replicate": 8, "ep": 4, "dp_shard": 1}, [4, 5, 6, 7], [[1], [5]]),
        ({"pp": 2, "dp_shard": 4, "ep": 2}, [4, 5], [5, 7]),
    ],
)
def test_neighbours_have_other_experts_and_the_others_share_them(layout, apart, sharing) -> None:
    with group(5, 8):
        found = mesh_of(ParallelPlan(**layout), "cpu").experts
        assert found is not None
        assert (found.apart.mesh.tolist(), found.sharing.mesh.tolist()) == (apart, sharing)


@pytest.mark.parametrize("layout", [{"dp_shard": 6, "ep": 4}, {"dp_shard": 2, "tp": 3, "ep": 2}])
def test_experts_that_do_not_lie_along_data_axes_are_refused(layout) -> None:
    with group(0, 6), pytest.raises(ValueError, match=r"ep=\d cannot lie"):
        mesh_of(ParallelPlan(**layout), "cpu")


def test_another_number_of_processes_than_the_layouts_is_refused() -> None:
    with group(0, 4), pytest.raises(ValueError, match="4 processes were started for a layout of 24 ranks"):
        mesh_of(PLAN, "cpu")


def test_a_process_alone_is_a_mesh_of_one() -> None:
    assert (ALONE.alone, ALONE.rank, ALONE.leads, ALONE.ranks, ALONE.index(*AXES)) == (True, 0, True, 1, 0)
    assert torch.equal(ALONE.sum(torch.tensor(3.0), *AXES), torch.tensor(3.0))


def test_only_axes_of_several_ranks_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def reduced(value: torch.Tensor, group: dist.ProcessGroup) -> None:
        sent.append(group.size())

    with group(0, 24):
        mesh = mesh_of(PLAN, "cpu")
        record: Callable[..., None] = reduced
        monkeypatch.setattr(dist, "all_reduce", record)
        mesh.sum(torch.zeros(()), "cp", "dp_replicate", "tp")
    assert sent == [3, 2]


@pytest.mark.parametrize(("device", "left"), [("cpu", True), ("cuda:0", False)])
def test_an_error_waits_for_no_message_of_an_accelerators_library(monkeypatch, device, left) -> None:
    asked = []
    monkeypatch.setattr(module, "load", lambda *_, **__: lambda kind: "nccl")
    monkeypatch.setattr(module, "mesh_of", lambda *_: ALONE)
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: asked.append(device))
    with pytest.raises(KeyError), joined(ParallelPlan(), torch.device(device)):
        raise KeyError
    assert bool(asked) == left
    with joined(ParallelPlan(), torch.device(device)):
        asked.clear()
    assert asked == [device]


def _ask(rank: int, store: str, answers: multiprocessing.SimpleQueue) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(store, 3), rank=rank, world_size=3)
    pair = dist.new_group([0, 2])
    among = everyone({"of": rank}, 2, pair) if rank != 1 else None
    answers.put((rank, everyone((rank, "all"), 3), among))
    dist.destroy_process_group()


def test_everyone_hears_everyone_by_number(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    ranks = [context.Process(target=_ask, args=(rank, str(tmp_path / "store"), answers)) for rank in range(3)]
    for each in ranks:
        each.start()
    heard = sorted(answers.get() for _ in ranks)
    for each in ranks:
        each.join()
    every = [(0, "all"), (1, "all"), (2, "all")]
    pair = [{"of": 0}, {"of": 2}]
    assert heard == [(0, every, pair), (1, every, None), (2, every, pair)]
