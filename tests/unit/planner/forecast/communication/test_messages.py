"""Messages by count and bytes, held to sums over the catalogue's shapes; the trainer's own are counted beside it."""

from __future__ import annotations

import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.planner.forecast.communication.messages import messages
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Workload

LLAMA = catalogue_model("llama3-8b")
ROOT = 2 * 128256 * 4096 + 4096
BLOCK = 2 * 4096 + 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096


def sent(parallel: ParallelPlan, *, passes: int = 1) -> dict[tuple[str, str], tuple[int, float]]:
    work = Workload(sequence_tokens=8192, batch_tokens=8192 * 64, steps=1, precision="bf16", optimizer="adamw")
    run = RunSpec(model=LLAMA, workload=work, cluster=cluster("8x8xh100-sxm"), stack=read_stack(OURS))
    return {(each.kind, each.axis): (each.count, each.size_bytes) for each in messages(run, parallel, passes=passes)}


@pytest.mark.parametrize("passes", [1, 3])
def test_zero_3_gathers_blocks_twice_and_the_root_once(passes: int) -> None:
    found = sent(ParallelPlan(dp_shard=64), passes=passes)
    assert found["all-gather", "dp_shard"] == (passes * 65, passes * (2 * 32 * BLOCK * 2 + ROOT * 4))
    assert found["reduce-scatter", "dp_shard"] == (passes * 33, passes * 4 * (32 * BLOCK + ROOT))
    assert found["all-reduce", "dp_shard"] == (3, 20)
    assert len(found) == 3


def test_below_zero_3_weights_are_gathered_once_a_step() -> None:
    for stage, reductions in ((1, 1), (2, 3)):
        found = sent(ParallelPlan(dp_shard=64, zero_stage=stage), passes=3)
        assert found["all-gather", "dp_shard"] == (33, 32 * BLOCK * 2 + ROOT * 4)
        assert found["reduce-scatter", "dp_shard"][0] == 33 * reductions


def test_copies_add_up_shards_once() -> None:
    found = sent(ParallelPlan(dp_replicate=8, dp_shard=8), passes=2)
    assert found["all-reduce", "dp_replicate"] == (33 + 3, 4 * (32 * BLOCK + ROOT) / 8 + 20)


def test_one_process_sends_nothing() -> None:
    assert sent(ParallelPlan()) == {}
