"""Each piece is written once, by ranks that write about as much each; a copy is a copy."""

from __future__ import annotations

import pytest
import torch

from trainwright.artifact.checkpoint.index import MODEL
from trainwright.stages.train.saving.pieces import Claim, HostCopy, owners
from trainwright.stages.train.world import ALONE


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


def test_a_copy_does_not_change_and_its_memory_is_used_again() -> None:
    weight, half, count = torch.randn(3, 5), torch.randn(4).bfloat16(), torch.tensor(7.0)
    tensors = [(MODEL, "weight", weight), (MODEL, "half", half), (MODEL, "count", count), (MODEL, "none", weight[:0])]
    copy = HostCopy()
    taken = {each.claim.name: each for each in copy.take(tensors, ALONE)}
    before = {name: b"".join(part.tobytes() for part in each.bytes().data) for name, each in taken.items()}
    assert before["weight"] == weight.numpy().tobytes()
    assert before["half"] == half.view(torch.uint8).numpy().tobytes()
    assert before["count"] == count.numpy().tobytes() and taken["count"].claim.whole == ()
    assert before["none"] == b"" and taken["none"].claim.whole == (0, 5)
    places = {name: each.tensor.data_ptr() for name, each in taken.items()}
    weight.add_(1)
    assert b"".join(part.tobytes() for part in taken["weight"].bytes().data) == before["weight"]
    again = {each.claim.name: each.tensor.data_ptr() for each in copy.take(tensors, ALONE)}
    assert again == places
    assert copy.size_bytes == 3 * 5 * 4 + 4 * 2 + 4
