"""Layouts and precisions that adapters are not trained in."""

from __future__ import annotations

import pytest

from trainwright.model.adapters.refusals import refusals
from trainwright.spec.workload import ParallelPlan


@pytest.mark.parametrize("axis", ["tp", "pp"])
def test_axes_are_refused_by_name(axis) -> None:
    (reason,) = refusals(ParallelPlan(**{axis: 2}), "bf16")
    assert reason.startswith(f"{axis}=2: ")
    assert reason.endswith(f"set {axis}=1")


def test_beside_nf4_replicas_alone_are_trained() -> None:
    shared = ParallelPlan(dp_shard=2, cp=2)
    assert refusals(shared, "bf16") == refusals(ParallelPlan(dp_replicate=2), "bf16", quantised=True) == ()
    told = refusals(shared, "bf16", quantised=True, recompute="selective")
    assert [line.partition(":")[0] for line in told] == ["dp_shard=2", "cp=2", "recompute=selective"]
    assert all("; set " in line for line in told)


def test_fp8_is_refused_and_data_parallel_is_not() -> None:
    assert refusals(ParallelPlan(dp_replicate=2, dp_shard=2, cp=2), "bf16") == ()
    assert "train.precision" in refusals(ParallelPlan(), "fp8")[0]
