"""Which sequences each rank reads: all of them, each once, and about equally many."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.runtime.mesh import mesh_of
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.ranks.world import RankedWorld


@pytest.mark.parametrize("sequences", [0, 1, 5, 12, 13])
def test_every_sequence_is_read_by_one_data_rank(sequences: int) -> None:
    plan = ParallelPlan(dp_replicate=2, dp_shard=2, tp=2)
    read: dict[tuple[int, int], range] = {}
    for rank in range(plan.ranks):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=plan.ranks)
        mesh = mesh_of(plan, "cpu")
        rows = RankedWorld(mesh, batch_sequences=sequences).rows(sequences)
        place = (mesh.index("dp_replicate"), mesh.index("dp_shard"))
        assert read.setdefault(place, rows) == rows  # the ranks of one tensor-parallel group read the same
        dist.destroy_process_group()
    assert [row for place in sorted(read) for row in read[place]] == list(range(sequences))
    assert max(map(len, read.values())) - min(map(len, read.values())) <= 1


@pytest.mark.parametrize(
    ("shares", "sequences", "sizes"),
    [
        ((3, 1), 8, [3, 3, 1, 1]),
        ((2, 1, 1, 4), 8, [2, 1, 1, 4]),
        ((1, 1), 8, [2, 2, 2, 2]),
        ((1, 9), 4, [0, 0, 2, 2]),
    ],
)
def test_places_read_by_their_shares_and_neighbours_have_one(shares, sequences, sizes) -> None:
    parallel = ParallelPlan(dp_replicate=2, dp_shard=2, shares=shares)
    rows = [parallel.rows(sequences, place) for place in range(4)]
    assert [len(each) for each in rows] == sizes
    assert [row for each in rows for row in each] == list(range(sequences))
