"""Layouts that do not divide a run give reasons, each with what does, not exceptions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.spec.device import ClusterSpec, DeviceSpec, NodeSpec
from trainwright.spec.parts.batch_sizes import BatchPart
from trainwright.spec.parts.experts import Experts
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.workload import ParallelPlan, Workload

MODEL = ModelSection(layers=4, width=64, heads=4, context_tokens=128).spec(vocabulary=100)
WORK = Workload(sequence_tokens=128, batch_tokens=1024, steps=10, precision="fp32", optimizer="adamw")
DEVICE = DeviceSpec(name="x", kind="cuda", vendor="v", memory_bytes=1, bytes_per_s=1.0, flops_per_s={})


def cluster(devices: int) -> ClusterSpec:
    return ClusterSpec(node=NodeSpec(device=DEVICE, devices=devices))


@pytest.mark.parametrize(
    ("plan", "devices", "part"),
    [
        (ParallelPlan(), 2, "the layout uses 1 devices, the cluster has 2"),
        (ParallelPlan(), 4, "with dp_shard=4 it is full"),
        (ParallelPlan(tp=3), 4, "tp x pp x cp = 3 does not divide them, nearest 2 or 4"),
        (ParallelPlan(tp=3), 3, "heads (4) cannot be divided over tp=3: nearest 2 or 4"),
        (ParallelPlan(pp=4, virtual_stages=2), 4, "the 8 stages of pp=4 with virtual_stages=2: at most pp=2"),
        (ParallelPlan(pp=5), 5, "layers (4) are fewer than the 5 stages of pp=5: at most pp=4"),
        (ParallelPlan(cp=3), 3, "a sequence of 128 tokens cannot be divided over cp=3: nearest 2 or 4"),
        (ParallelPlan(cp=128), 128, "one from the end: nearest 64, or context=ulysses"),
        (ParallelPlan(cp=8, context="ulysses"), 8, "heads (4 on a rank) cannot be exchanged over cp=8: nearest 4"),
        (ParallelPlan(dp_shard=2, shares=(1, 2, 1)), 2, "3 shares (1:2:1) for 2 data-parallel ranks"),
        (
            ParallelPlan(dp_shard=2, shares=(2, 1)),
            2,
            "cannot be divided into shares 2:1: nearest batches 6 or 9 sequences",
        ),
        (ParallelPlan(dp_shard=2, shares=(3, 1), micro_batch_sequences=4), 2, "micro batches of 4: nearest 2"),
        (ParallelPlan(ep=2), 1, "ep=2 divides experts, and this model has none"),
        (ParallelPlan(tp=0), 1, "tp must be at least 1, seen 0"),
        (ParallelPlan(dp_replicate=3), 3, "over 3 data-parallel ranks: nearest batches 6 or 9 sequences"),
        (ParallelPlan(micro_batch_sequences=3), 1, "8 sequences of a rank cannot be divided into micro batches of 3"),
        (ParallelPlan(micro_batch_sequences=0), 1, "micro_batch_sequences must be at least 1, seen 0"),
        (ParallelPlan(pp=3, schedule="dualpipe"), 3, "dualpipe needs an even number of stages, seen pp=3"),
        (ParallelPlan(pp=2, dp_shard=4, schedule="dualpipe"), 8, "at least 4 for pp=2, seen 2"),
        (ParallelPlan(pp=2, virtual_stages=2, schedule="dualpipe"), 2, "one stage a direction, seen virtual_stages=2"),
    ],
)
def test_impossible_layouts(plan, devices, part) -> None:
    assert any(part in reason for reason in plan.problems(MODEL, WORK, cluster(devices)))
    assert ParallelPlan(dp_replicate=2, tp=2).problems(MODEL, WORK, cluster(4)) == ()


def test_tokens_are_divided_with_sequence_parallelism_alone() -> None:
    work = replace(WORK, sequence_tokens=126, batch_tokens=126 * 8)
    (reason,) = ParallelPlan(tp=4).problems(MODEL, work, cluster(4))
    assert reason.startswith("sequence_parallel divides 126 tokens over tp=4, which does not: nearest 3 or 6")
    assert ParallelPlan(tp=4, sequence_parallel=False).problems(MODEL, work, cluster(4)) == ()


def test_more_ranks_than_key_heads_keep_copies_and_embedding_and_head_may_count_as_layers() -> None:
    grouped = replace(MODEL, kv_heads=2)
    assert ParallelPlan(tp=4).problems(grouped, WORK, cluster(4)) == ()
    assert ParallelPlan(pp=3).problems(MODEL, WORK, cluster(3)) == ()


@pytest.mark.parametrize(
    ("ep", "part"),
    [
        (3, "experts (8) cannot be divided over ep=3: nearest 2 or 4"),
        (4, "ranks of a stage (2) cannot be divided over ep=4"),
    ],
)
def test_experts_are_divided_over_ranks_that_there_are(ep, part) -> None:
    mixture = replace(MODEL, experts=Experts(count=8, active=2, ffn_width=64))
    assert part in "; ".join(ParallelPlan(dp_shard=2, ep=ep).problems(mixture, WORK, cluster(2)))
    assert ParallelPlan(dp_shard=2, ep=2).problems(mixture, WORK, cluster(2)) == ()


def test_each_size_of_a_batch_that_grows_must_divide():
    ramp = (BatchPart(batch_tokens=2 * 128, steps=5), BatchPart(batch_tokens=6 * 128, steps=5))
    work = replace(WORK, ramp=ramp)  # of 8 sequences in the end
    assert work.total_tokens == 5 * 256 + 5 * 768
    assert ParallelPlan(dp_shard=2).problems(MODEL, work, cluster(2)) == ()
    work = replace(work, ramp=ramp[1:])
    (told,) = ParallelPlan(dp_shard=4).problems(MODEL, work, cluster(4))
    assert (
        told == "a batch of 6 sequences cannot be divided over 4 data-parallel ranks: nearest batches 4 or 8 sequences"
    )
    (told,) = ParallelPlan(dp_shard=2, micro_batch_sequences=2).problems(MODEL, work, cluster(2))
    assert told == "3 sequences of a rank cannot be divided into micro batches of 2: nearest 1 or 3"


def test_the_nearest_batch_has_whole_micro_batches_on_each_rank() -> None:
    plan = ParallelPlan(dp_replicate=6, micro_batch_sequences=25)
    (told,) = plan.problems(MODEL, replace(WORK, batch_tokens=500 * 128), cluster(6))
    assert told.endswith("over 6 data-parallel ranks in micro batches of 25: nearest batches 450 or 600 sequences")
    for batch in (450, 600):
        assert plan.problems(MODEL, replace(WORK, batch_tokens=batch * 128), cluster(6)) == ()
