"""The cut into pipeline stages, against all cuts there are."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from fixtures.tiny_models import spec
from trainwright.hardware.catalogue.models import model
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.parallel.stages import Place, costs, place_of, stage_blocks, stage_owners, stage_waste
from trainwright.spec.workload import ParallelPlan


def slowest(sizes: tuple[int, ...], block: float, head: float) -> float:
    return max(size * block + (head if place == len(sizes) - 1 else 0.0) for place, size in enumerate(sizes))


def all_cuts(blocks: int, stages: int) -> list[tuple[int, ...]]:
    """The sizes of all cuts in which each stage has a block at least."""
    ends = ((0, *inner, blocks) for inner in combinations(range(1, blocks), stages - 1))
    return [tuple(end - start for start, end in pairwise(cut)) for cut in ends]


@pytest.mark.parametrize("vocabulary", [320, 3_000, 40_000])
@pytest.mark.parametrize("layers", [1, 4, 7, 12])
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5])
def test_no_cut_has_a_faster_slowest_stage(layers, stages, vocabulary) -> None:
    shape = spec(layers=layers, vocabulary=vocabulary)
    if stages > layers:
        with pytest.raises(ValueError, match=f"{layers} blocks are fewer than {stages} stages"):
            stage_blocks(shape, stages)
        return
    parts = stage_blocks(shape, stages)
    assert [block for part in parts for block in part] == list(range(layers))
    sizes = tuple(map(len, parts))
    assert min(sizes) >= 1
    block, head = costs(shape)
    assert slowest(sizes, block, head) == min(slowest(cut, block, head) for cut in all_cuts(layers, stages))
    assert list(sizes[:-1]) == sorted(sizes[:-1])


def test_costs_are_those_of_the_counted_operations() -> None:
    shape = model("llama-3-8b")
    block, head = costs(shape)
    flops = count_flops(shape, sequences=1, sequence_tokens=1)
    assert 2 * block * shape.layers == flops.linear
    assert 2 * head == flops.head


def test_the_head_of_gpt2_stands_for_five_blocks() -> None:
    assert [len(part) for part in stage_blocks(model("gpt2"), 2)] == [9, 3]
    assert [len(part) for part in stage_blocks(model("llama-3-8b"), 4)] == [8, 9, 9, 6]


def test_stages_need_not_divide_the_layers_but_then_the_slowest_has_more_than_its_share() -> None:
    assert stage_waste(64, 8) == 0
    assert stage_waste(126, 16) == 0  # embedding and head stand for a layer each
    assert stage_waste(61, 16) == pytest.approx(3 / 61)  # most have 4 layers, and 16 times 4 is 64
    assert stage_waste(32, 20) == pytest.approx(8 / 32)


def test_places_follow_the_way_of_a_token() -> None:
    shape = spec(layers=8, tied=True)
    there = ParallelPlan(pp=2, schedule="interleaved", virtual_stages=2)
    assert stage_owners(there) == (0, 1, 0, 1)
    first, last = (place_of(shape, there, place) for place in (0, 1))
    assert first == Place(blocks=first.blocks, begins=True, ends=False, neighbours=3, shares_table=True)
    assert last == Place(blocks=8 - first.blocks, begins=False, ends=True, neighbours=3, shares_table=True)
    back = ParallelPlan(pp=3, schedule="dualpipe")
    assert stage_owners(back) == (0, 1, 2, 2, 1, 0)
    both, middle, turn = (place_of(shape, back, place) for place in range(3))
    assert (both.begins, both.ends, both.shares_table, both.neighbours) == (True, True, False, 2)
    assert (middle.neighbours, turn.neighbours) == (4, 2)  # a place hands nothing on to itself
    assert place_of(shape, ParallelPlan(), 0) == Place(blocks=8)
