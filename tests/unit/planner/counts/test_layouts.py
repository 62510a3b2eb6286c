"""Arrays of layouts say of each what its plan says alone."""

import math
from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainwright.planner.counts.layouts import OFFLOADS, RECOMPUTES, SCHEDULES, Layouts
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(sequence_tokens=512, batch_tokens=512 * 96, steps=1, precision="bf16", optimizer="adamw")
SIZES = st.sampled_from([1, 2, 3, 4, 8])
PLANS = st.builds(
    ParallelPlan,
    dp_replicate=SIZES,
    dp_shard=SIZES,
    tp=SIZES,
    pp=SIZES,
    cp=SIZES,
    ep=SIZES,
    micro_batch_sequences=SIZES,
    compile=st.booleans(),
    zero_stage=st.sampled_from([0, 1, 2, 3]),
    sequence_parallel=st.booleans(),
    schedule=st.sampled_from(SCHEDULES),
    virtual_stages=SIZES,
    offload=st.sampled_from(OFFLOADS),
)


@given(st.lists(st.tuples(PLANS, st.sampled_from(RECOMPUTES)), min_size=1, max_size=5))
def test_every_plan_is_found_in_its_place(chosen):
    plans, recomputes = zip(*chosen, strict=True)
    rows = Layouts.of(plans, recomputes, WORK)
    assert len(rows) == len(plans)
    for place, (plan, recompute) in enumerate(chosen):
        assert rows.devices[place] == plan.dp_replicate * plan.dp_shard * plan.tp * plan.pp * plan.cp
        assert rows.data_parallel[place] == plan.dp_replicate * plan.dp_shard
        assert rows.micro_batches[place] == max(
            1, math.ceil(WORK.batch_sequences / (plan.dp_replicate * plan.dp_shard * plan.micro_batch_sequences))
        )
        assert rows.has("schedule", plan.schedule)[place]
        assert rows.has("offload", plan.offload)[place]
        assert rows.has("recompute", recompute)[place]
        for name in ("tp", "pp", "cp", "ep", "zero_stage", "sequence_parallel", "virtual_stages", "compile"):
            assert getattr(rows, name)[place] == getattr(plan, name)
        assert rows.micro_batch[place] == plan.micro_batch_sequences


def test_some_of_them_can_be_taken():
    plans = [ParallelPlan(dp_shard=n) for n in (1, 2, 4, 8)]
    rows = Layouts.of(plans, ["none", "full", "none", "full"], WORK)
    assert rows.take(rows.has("recompute", "full")).dp_shard.tolist() == [2, 8]
    assert rows.take(np.array([3, 0])).dp_shard.tolist() == [8, 1]


def test_none_are_arrays_too():
    rows = Layouts.of([], [], WORK)
    assert len(rows) == 0
    assert all(getattr(rows, field.name).shape == (0,) for field in fields(rows))
