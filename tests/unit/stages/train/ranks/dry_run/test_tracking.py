"""What the places of a pipeline keep: each is counted by itself, beside what is planned for it."""

from __future__ import annotations

import pytest
import torch
from packaging.version import Version
from torch.distributed._tools import mod_tracker

from trainwright.planner.counts.parallel.dry_run import DryRun
from unit.stages.train.ranks.dry_run.test_run import OF_THIS_TRACKER, counted, messages

SHAPE = {"layers": 4, "width": 128, "heads": 4, "ffn_width": 448, "context_tokens": 256}
SPLIT = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.13"), reason="torch 2.11 tells stages apart by messages of its own"
)


def pipeline(layout: dict[str, object], *, sequences: int = 8, **train: object) -> DryRun:
    more = {"shape": SHAPE, "vocabulary": 2048, "sequence_tokens": 256, "batch_tokens": 256 * sequences}
    return counted(layout, **more | train)


def test_the_first_place_of_1f1b_keeps_a_micro_batch_for_each_place() -> None:
    run = pipeline({"pp": 3}, shape=SHAPE | {"layers": 6})
    assert run.passes == 4
    assert [(rank.rank, rank.alike) for rank in run.ranks] == [(0, 1), (1, 1), (2, 1)]
    blocks = [{name.split(".")[1] for name in rank.shares if name.startswith("blocks")} for rank in run.ranks]
    assert [len(each) for each in blocks] == [2, 3, 1]  # the last one has the head too
    assert set.union(*blocks) == set("012345")
    each = [rank.memory["activations"] / len(here) for rank, here in zip(run.ranks, blocks, strict=True)]
    assert each[0] / each[1] == pytest.approx(3 / 2, rel=0.03)


@OF_THIS_TRACKER
@pytest.mark.parametrize(
    ("layout", "recompute"),
    [
        ({"pp": 2}, "none"),
        ({"pp": 2}, "selective"),
        ({"pp": 2, "schedule": "gpipe"}, "none"),
        ({"pp": 2, "schedule": "interleaved", "virtual_stages": 2}, "none"),
        ({"pp": 2, "dp_shard": 2}, "none"),
        ({"pp": 2, "tp": 2}, "none"),
    ],
    ids=str,
)
def test_each_place_keeps_what_is_planned(layout: dict[str, object], recompute: str) -> None:
    for rank in pipeline(layout, recompute=recompute).ranks:
        total = sum(rank.memory.values())
        assert sum(rank.planned_memory.values()) == pytest.approx(total, rel=0.05), rank.rank
        for name, size_bytes in rank.memory.items():
            assert rank.planned_memory[name] == pytest.approx(size_bytes, rel=0.05, abs=0.05 * total), (rank.rank, name)


@SPLIT
@pytest.mark.parametrize(
    "layout",
    [
        {"pp": 3},
        {"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "dp_shard": 2},
        {"pp": 2, "schedule": "zero_bubble"},
        {"pp": 2, "schedule": "dualpipe", "tp": 2},
        {"pp": 2, "dp_replicate": 2, "dp_shard": 2, "zero_stage": 1},
        {"pp": 2, "cp": 2, "tp": 2, "sequence_parallel": False},
    ],
    ids=str,
)
def test_each_place_sends_what_is_planned(layout: dict[str, object]) -> None:
    tied = "dp_shard" in layout  # its gradient is added up over both ends
    for rank in counted(layout, sequences=8, shape={"layers": 4, "tied": tied}).ranks:
        planned = {(each.kind, each.axis): (each.count, each.size_bytes) for each in rank.planned_sent}
        assert messages(rank) == planned, rank.rank


@SPLIT
def test_places_hand_on_every_micro_batch_and_its_gradient() -> None:
    first, middle, last = counted({"pp": 3}, sequences=8).ranks
    stream = 32 * 64 * 2  # bytes of 32 tokens of 64 numbers in bf16
    for rank, neighbours in ((first, 1), (middle, 2), (last, 1)):
        for kind in ("send", "receive"):
            assert messages(rank)[kind, "pp"] == (4 * neighbours, 4 * neighbours * stream), rank.rank


def test_a_tracker_is_left_as_it_was() -> None:
    before = mod_tracker.register_multi_grad_hook
    counted({"pp": 2})
    assert mod_tracker.register_multi_grad_hook is before
