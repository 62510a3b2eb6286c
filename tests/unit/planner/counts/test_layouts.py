"""Arrays of layouts say of each what its plan says alone."""

import math
from dataclasses import fields, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainwright.planner.counts.layouts import (
    MANY,
    OFFLOADS,
    RECOMPUTES,
    SCHEDULES,
    Alike,
    Layouts,
    counted_once,
    kinds_of,
)
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


@given(st.lists(st.lists(st.integers(0, 70_000), min_size=3, max_size=3), min_size=1, max_size=9))
def test_what_is_counted_once_for_equal_ones_is_that_of_each(kinds):
    """Against a count of each row: of large numbers, and of constant columns, too."""
    drawn = np.random.default_rng(0).integers(0, len(kinds), size=2 * MANY)
    columns = np.asarray(kinds, dtype=np.float64)[drawn].T
    sizes = [ParallelPlan(dp_replicate=1 + place) for place in range(len(kinds))]
    rows = Layouts.of(sizes, ["none"] * len(kinds), WORK).take(drawn)
    rows = replace(rows, dp_shard=columns[0], tp=columns[1], pp=columns[2])
    asked = []

    def count(some):
        asked.append(len(some))
        return {"sum": some.dp_shard + 2 * some.tp + 3 * some.pp, "one": 1.5}

    found = counted_once(rows, [rows.dp_shard, rows.tp, rows.pp], count)
    assert found["sum"].tolist() == (columns[0] + 2 * columns[1] + 3 * columns[2]).tolist()
    assert found["one"] == 1.5
    assert asked == [len(np.unique(columns, axis=1).T)]
    one_column = [kinds_of(columns[:2]), columns[2]]  # as good as the two columns that it stands for
    assert Alike.of(rows, one_column).counted(count)["sum"].tolist() == found["sum"].tolist()
    assert asked[1:] == asked[:1]
