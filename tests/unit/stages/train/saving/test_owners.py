"""Each piece is written once, by ranks that write about as much each."""

from __future__ import annotations

import pytest
import torch

from trainwright.artifact.checkpoint.index import MODEL
from trainwright.stages.train.saving.owners import owners
from trainwright.stages.train.saving.pieces import Claim, HostCopy
from trainwright.stages.train.world import World


def claim(name: str, rows: range, whole: int = 8) -> Claim:
    return Claim(MODEL, name, "F32", (whole, 4), (rows.start, 0), (len(rows), 4))


def test_of_copies_one_rank_writes_and_each_about_as_much() -> None:
    everything = [claim(name, range(8)) for name in "abcdefgh"]
    chosen = owners([everything] * 4)
    assert set(chosen) == set(everything)
    assert sorted(list(chosen.values()).count(rank) for rank in range(4)) == [2, 2, 2, 2]


def test_shards_are_written_where_they_are() -> None:
    halves = [claim("a", range(4)), claim("a", range(4, 8))]
    chosen = owners([[halves[0]], [halves[1]], [halves[0]], [halves[1]]])
    assert chosen == {halves[0]: 0, halves[1]: 1}


def test_uneven_shards_are_whole_too() -> None:
    assert len(owners([[claim("a", range(3), 5)], [claim("a", range(3, 5), 5)], []])) == 2


@pytest.mark.parametrize("rows", [[range(4)], [range(8), range(4)], [range(5), range(4, 8)]])
def test_holes_and_overlaps_are_our_mistake(rows) -> None:
    with pytest.raises(ValueError, match="pieces of a do not make a tensor of shape"):
        owners([[claim("a", each)] for each in rows])


class Two(World):
    """Two ranks that hold the same, of which this is one."""

    rank, ranks = 1, 2

    def __init__(self) -> None:
        self.asked: list[int] = []

    def gathered(self, value):
        self.asked.append(len(value) if isinstance(value, list) else 0)
        return [value, value]


def claims_of(tensors) -> list[Claim]:
    return [Claim(kind, name, "F32", tuple(each.shape), (0,), tuple(each.shape)) for kind, name, each in tensors]


def test_who_writes_what_is_asked_again_only_where_state_has_come() -> None:
    names = ["a", "b", "c", "d"]
    tensors = [(MODEL, name, torch.randn(3)) for name in names]
    copy, world = HostCopy(), Two()
    first = [each.claim.name for each in copy.take(tensors, world)]
    assert len(first) == 2 and world.asked == [0, 4]
    assert [each.claim.name for each in copy.take(tensors, world)] == first
    assert world.asked == [0, 4, 0]
    more = [*tensors, (MODEL, "e", torch.randn(100))]
    theirs = owners([claims_of(more)] * 2)
    assert {each.claim.name for each in copy.take(more, world)} == {
        claim.name for claim, rank in theirs.items() if rank == 1
    }
    assert world.asked == [0, 4, 0, 0, 5]
