"""How often a job begins again, with how many ranks, and what is recorded of it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest

from fixtures.words import dataset
from trainwright.artifact.checkpoint.index import INDEX
from trainwright.artifact.events import Events, read_events, restarts_in
from trainwright.core.errors import DataError
from trainwright.core.records import from_json
from trainwright.spec.plan import Plan
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.faults.memory import Change, OutOfMemory
from trainwright.stages.train.ranks.rank import RankTask
from trainwright.stages.train.ranks.restarts import Several, fewer_ranks, lost, on_fewer_hosts, with_restarts
from trainwright.stages.train.ranks.watch import GoneHost, HostsGone, RankFault

__all__ = ["dataset"]


@pytest.fixture
def task(make_recipe, inputs_for, tmp_path):
    def make(**how) -> RankTask:
        recipe = make_recipe(**{f"exec_{name}": value for name, value in how.items()})
        planned = inputs_for(recipe)["plan"].file("plan.json")
        plan = from_json(Plan, json.loads(planned.read_text()), where=str(planned))
        plan = replace(plan, parallel=ParallelPlan(dp_shard=4, micro_batch_sequences=4))
        out = tmp_path / "out"
        out.mkdir()
        return RankTask(recipe=recipe, plan=plan, inputs={}, digests={}, out=out, root=tmp_path)

    return make


def fault(rank: int) -> RankFault:
    return RankFault("rank {rank} ended", rank=rank, seen=None, fields={})


def launching(*ends):
    """Launches that end like these in turn; what each was given."""
    given, turns = [], iter(ends)

    def launch(task) -> None:
        given.append(task)
        if (end := next(turns)) is not None:
            raise end

    return launch, given


def run(task, launch) -> None:
    with_restarts(task, Events(None, run="x"), launch)


def test_a_job_begins_again_as_often_as_is_allowed(task) -> None:
    work = task(max_restarts=2)
    launch, given = launching(fault(1), fault(2), None)
    run(work, launch)
    assert given == [work] * 3
    assert restarts_in(work.out / "events.jsonl") == 2
    told = [event for event in read_events(work.out / "events.jsonl") if event.kind == "restart"]
    assert [(event.name, event.unit, event.step) for event in told] == [("train", "s", 0)] * 2
    assert "rank 1 ended" in told[0].text


def test_the_last_fault_is_raised(task) -> None:
    launch, given = launching(fault(1), fault(3))
    with pytest.raises(RankFault) as raised:
        run(task(max_restarts=1), launch)
    assert raised.value.rank == 3
    assert len(given) == 2


def test_what_a_user_must_mend_is_not_tried_again(task) -> None:
    launch, given = launching(DataError("a shard is damaged"))
    with pytest.raises(DataError):
        run(task(max_restarts=5), launch)
    assert len(given) == 1


@pytest.mark.parametrize(("elastic", "ranks"), [(False, [4, 4, 4]), (True, [4, 4, 3])])
def test_a_rank_that_fails_again_before_a_checkpoint_is_left_out(task, elastic, ranks) -> None:
    launch, given = launching(fault(2), fault(2), None)
    run(task(max_restarts=2, elastic=elastic), launch)
    assert [each.plan.parallel.ranks for each in given] == ranks


def test_another_rank_or_a_checkpoint_between_is_another_fault(task) -> None:
    work = task(max_restarts=2, elastic=True)
    launch, given = launching(fault(2), fault(1), None)
    run(work, launch)
    assert [each.plan.parallel.ranks for each in given] == [4, 4, 4]


def test_memory_that_ends_changes_the_plan(task) -> None:
    error = OutOfMemory("out of memory")
    error.change = Change(micro_batch=2, recompute="full", slowdown=1.4)
    launch, given = launching(error, None)
    run(task(on_oom="adapt"), launch)
    assert given[1].plan.parallel.micro_batch_sequences == 2
    assert given[1].plan.workload.recompute == given[1].recipe.train.recompute == "full"


def test_memory_that_ends_stops_where_nothing_else_is_asked_for(task) -> None:
    error = OutOfMemory("out of memory")
    error.change = Change(micro_batch=2, recompute="full", slowdown=1.4)
    launch, _ = launching(error)
    with pytest.raises(OutOfMemory):
        run(task(), launch)


def test_what_is_lost_is_counted_since_the_newest_checkpoint_whatever_the_clock_says(tmp_path) -> None:
    assert lost(tmp_path, 7.0) == (0, 7.0)
    for step, age_s in ((3, 50), (12, 4)):
        path = tmp_path / "checkpoints" / f"step-{step:08d}"
        path.mkdir(parents=True)
        (path / INDEX).touch()
        os.utime(path, (time.time() - age_s,) * 2)
    (tmp_path / "checkpoints" / "step-00000020").mkdir()  # no index: no checkpoint
    step, seconds = lost(tmp_path, 100.0)
    assert step == 12
    assert seconds == pytest.approx(4, abs=1)
    os.utime(path, (time.time() + 5000,) * 2)
    assert lost(tmp_path, 100.0) == (12, 0.0), "the clock was set back"
    os.utime(path, (0, 0))
    assert lost(tmp_path, 100.0) == (12, 100.0), "the clock was set forward"


@pytest.mark.parametrize(
    ("layout", "ranks"),
    [
        ({"dp_shard": 4}, 3),
        ({"dp_replicate": 2, "dp_shard": 2}, 2),
        ({"dp_shard": 4, "shares": (3, 1)}, 3),
        ({"pp": 2}, None),
        ({"pp": 2, "dp_shard": 2, "schedule": "dualpipe"}, None),
        ({"dp_shard": 4, "ep": 2}, 2),
        ({"dp_shard": 4, "ep": 4}, None),
        ({"dp_replicate": 4, "ep": 2}, 2),
        ({"dp_replicate": 2, "dp_shard": 2, "ep": 4}, None),
    ],
)
def test_one_rank_fewer_along_a_data_axis(task, layout, ranks) -> None:
    plan = replace(task().plan, parallel=ParallelPlan(**layout))
    fewer = fewer_ranks(plan)
    assert (None if fewer is None else fewer.parallel.ranks) == ranks
    assert fewer is None or fewer.parallel.shares == ()


def test_shares_become_equal_on_fewer_ranks(task) -> None:
    work = task(max_restarts=2, elastic=True)
    work = replace(work, plan=replace(work.plan, parallel=replace(work.plan.parallel, shares=(3, 1))))
    launch, given = launching(fault(2), fault(2), None)
    run(work, launch)
    assert given[2].plan.parallel == replace(work.plan.parallel, dp_shard=3, shares=())
    told = [event.text for event in read_events(work.out / "events.jsonl") if event.kind == "message"]
    assert told[-1] == "rank 2 is gone: going on with 3 ranks with equal shares"


@pytest.mark.parametrize(
    ("layout", "hosts", "left"),
    [
        ({"dp_shard": 4}, 2, {"dp_shard": 2}),
        ({"dp_replicate": 2, "dp_shard": 4}, 2, {"dp_shard": 4}),
        ({"dp_replicate": 2, "dp_shard": 4}, 4, {"dp_replicate": 2, "dp_shard": 3}),
        ({"dp_shard": 6, "shares": (1, 2, 3)}, 3, {"dp_shard": 4}),
        ({"dp_shard": 2, "tp": 4}, 2, {"tp": 4}),
        ({"dp_shard": 2, "tp": 4}, 8, None),
        ({"pp": 2}, 2, None),
        ({"dp_shard": 4, "ep": 4}, 4, None),
    ],
)
def test_a_host_fewer_along_a_data_axis(task, layout, hosts, left) -> None:
    plan = replace(task().plan, parallel=ParallelPlan(**layout))
    fewer = on_fewer_hosts(plan, hosts)
    assert (None if fewer is None else fewer.parallel) == (None if left is None else ParallelPlan(**left))
    assert fewer is None or fewer.parallel.ranks == plan.parallel.ranks // hosts * (hosts - 1)


@pytest.mark.parametrize(
    ("layout", "hosts", "gone", "left"),
    [
        ({"dp_shard": 8}, 4, 2, {"dp_shard": 4}),
        ({"dp_replicate": 4, "dp_shard": 2}, 4, 3, {"dp_shard": 2}),
        ({"dp_replicate": 2, "dp_shard": 4}, 4, 3, {"dp_replicate": 2}),
        ({"dp_shard": 4, "ep": 4}, 4, 2, None),
    ],
)
def test_several_hosts_fewer_at_once(task, layout, hosts, gone, left) -> None:
    plan = replace(task().plan, parallel=ParallelPlan(**layout))
    fewer = on_fewer_hosts(plan, hosts, gone=gone)
    assert (None if fewer is None else fewer.parallel) == (None if left is None else ParallelPlan(**left))


def leaving(node: int):
    """Of two hosts, this one; whom it left out."""
    left = []

    def without(fault, plan):
        left.append(fault)
        return on_fewer_hosts(plan, 2)

    return Several(node, bool, without), left


@pytest.mark.parametrize("node", [0, 1])
def test_a_host_that_is_gone_is_left_out(task, node) -> None:
    work, gone = task(max_restarts=1, elastic=True), HostsGone([GoneHost(1, 2, "b")])
    launch, given = launching(gone, None)
    several, left = leaving(node)
    with_restarts(work, Events(None, run="x"), launch, several=several)
    assert [each.plan.parallel.ranks for each in given] == [4, 2]
    assert left == [gone]
    log = work.out / "events.jsonl"
    assert log.is_file() == (node == 0), "the first host records"
    if node == 0:
        told = [event.text for event in read_events(log)]
        assert told[-1] == "node 2 is gone: going on with 2 ranks"
        assert restarts_in(log) == 1


def test_a_host_whose_rank_fails_again_before_a_checkpoint_is_left_out(task) -> None:
    launch, given = launching(fault(3), fault(3), None)
    several, left = leaving(0)
    with_restarts(task(max_restarts=2, elastic=True), Events(None, run="x"), launch, several=several)
    assert [each.plan.parallel.ranks for each in given] == [4, 4, 2]
    assert [each.rank for each in left] == [3]


def test_two_hosts_that_are_gone_take_one_restart(task) -> None:
    work, fault_of_two = task(max_restarts=1, elastic=True), HostsGone([GoneHost(1, 1, "b"), GoneHost(2, 2, "c")])
    launch, given = launching(fault_of_two, None)
    several = Several(0, bool, lambda fault, plan: on_fewer_hosts(plan, 4, gone=len(fault.hosts)))
    with_restarts(work, Events(None, run="x"), launch, several=several)
    assert [each.plan.parallel.ranks for each in given] == [4, 2]
    told = [event.text for event in read_events(work.out / "events.jsonl") if event.kind == "message"]
    assert told[-2].startswith("no word any more of the command of node 1 on b, node 2 on c; all ranks were ended;")
    assert told[-1] == "node 1, node 2 are gone: going on with 2 ranks"


def test_a_rank_that_cannot_be_left_out_is_said(task) -> None:
    work = task(max_restarts=2, elastic=True)
    work = replace(work, plan=replace(work.plan, parallel=ParallelPlan(tp=4)))
    launch, given = launching(fault(2), fault(2), None)
    run(work, launch)
    assert [each.plan.parallel.ranks for each in given] == [4, 4, 4]
    told = [event.text for event in read_events(work.out / "events.jsonl") if event.kind == "message"]
    assert told[-1].startswith("rank 2 is gone, and not left out: train.exec.elastic leaves out copies or shards")


def test_numbers_are_others_once_a_host_is_left_out(task) -> None:
    launch, given = launching(fault(2), fault(2), fault(2), None)
    several, left = leaving(0)
    with_restarts(task(max_restarts=3, elastic=True), Events(None, run="x"), launch, several=several)
    assert [each.plan.parallel.ranks for each in given] == [4, 4, 2, 2], "the last one is another rank 2"
    assert len(left) == 1


def test_the_first_host_decides_whether_a_rank_failed_again_before_a_checkpoint(task) -> None:
    launch, given = launching(fault(3), fault(3), None)
    asked = []

    def agreed(gone: bool) -> bool:
        asked.append(gone)
        return False  # the first one has seen a checkpoint in between

    several = Several(1, agreed, lambda *_: pytest.fail("no host is gone"))
    with_restarts(task(max_restarts=2, elastic=True), Events(None, run="x"), launch, several=several)
    assert asked == [False, True]
    assert [each.plan.parallel.ranks for each in given] == [4, 4, 4]


@pytest.mark.parametrize("how", [{"max_restarts": 3}, {"max_restarts": 0}])
def test_a_host_that_is_gone_ends_all_where_nothing_else_is_asked_for(task, how) -> None:
    launch, given = launching(HostsGone([GoneHost(1, 2, "b")]))
    several, left = leaving(0)
    with pytest.raises(HostsGone, match="no word any more of the command of node 2 on b; all"):
        with_restarts(task(**how), Events(None, run="x"), launch, several=several)
    assert len(given) == 1 and not left


def test_a_host_without_which_nothing_goes_on_ends_all(task) -> None:
    launch, _ = launching(HostsGone([GoneHost(1, 2, "b")]))
    several = Several(0, bool, lambda *_: None)
    with pytest.raises(
        HostsGone, match="elastic leaves out copies or shards that others can do without, and never node 0"
    ):
        with_restarts(task(max_restarts=1, elastic=True), Events(None, run="x"), launch, several=several)
