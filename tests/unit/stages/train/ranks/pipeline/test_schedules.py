"""Schedules run any number of micro batches, with as few empty ones as torch lets them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.pipeline_ranks import LAYOUTS
from fixtures.tiny_models import decoder
from trainwright.model.parallel.stages import pipeline_of
from trainwright.runtime.mesh import mesh_of
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.ranks.pipeline.schedules import Stage, held, passes, schedule_of


@contextmanager
def stages_of(parallel: ParallelPlan, rank: int = 0) -> Iterator[list[Stage]]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=parallel.pp)
    try:
        axis = mesh_of(parallel, "cpu").axis("pp")
        assert axis is not None
        network = decoder(layers=8)
        pipeline = pipeline_of(network.spec, parallel)
        yield [
            Stage(
                *(network, lambda *_: torch.zeros(()), PhaseClock(torch.device("cpu"))),
                place=(stage, len(pipeline.parts)),
                stream=torch.empty(1, 4, 32, device="meta", requires_grad=True),
                group=axis.get_group(),
            )
            for stage in pipeline.of(rank)
        ]
    finally:
        dist.destroy_process_group()


def runs(parallel: ParallelPlan, stages: list[Stage], micro_batches: int) -> bool:
    try:
        schedule_of(parallel, stages, micro_batches, lambda *_: torch.zeros(()))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("pp", [2, 3, 4])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe"])
def test_no_micro_batch_is_empty_that_torch_does_not_want(pp, schedule) -> None:
    parallel = ParallelPlan(pp=pp, schedule=schedule, virtual_stages=2 if schedule == "interleaved" else 1)
    with stages_of(parallel) as stages:
        for micro_batches in range(1, 11):
            fewest = next(number for number in range(micro_batches, 99) if runs(parallel, stages, number))
            assert passes(parallel, micro_batches) == fewest, micro_batches


@pytest.mark.parametrize(("schedule", "rank", "kept"), [("gpipe", 0, 6), ("1f1b", 0, 4), ("1f1b", 3, 1)])
def test_gpipe_keeps_all_micro_batches_and_1f1b_as_many_as_stages_follow(schedule, rank, kept) -> None:
    parallel = ParallelPlan(pp=4, schedule=schedule)
    with stages_of(parallel, rank) as stages:
        schedule = schedule_of(parallel, stages, 6, lambda *_: torch.zeros(()))
        assert held(parallel, schedule, stages[0]) == kept


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [parallel.schedule for parallel in LAYOUTS])
def test_a_stage_keeps_as_many_micro_batches_as_is_counted(seen, schedule) -> None:
    for rank in seen:
        assert rank[schedule]["held"] == rank[schedule]["kept"]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [parallel.schedule for parallel in LAYOUTS])
def test_the_clock_hears_of_passes_and_of_waiting(seen, schedule) -> None:
    for rank in seen:
        assert all(seconds > 0 for seconds in rank[schedule]["phases"])
