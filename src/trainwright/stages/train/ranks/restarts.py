"""Restarts a job whose rank died or hangs, from its last checkpoint, on fewer ranks where one is gone for good."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainwright.artifact.checkpoint.index import checkpoints_in, step_of
from trainwright.artifact.events import Events
from trainwright.spec.plan import Plan
from trainwright.stages.train.faults.memory import Change, OutOfMemory, tell, with_change
from trainwright.stages.train.ranks.rank import RankTask
from trainwright.stages.train.ranks.watch import RankFault


def with_restarts(
    task: RankTask, events: Events, launch: Callable[[RankTask], None], *, node: int | None = None
) -> None:
    """Launches a task until it ends, as often as the recipe allows.

    What a rank reports is the user's to mend and would come again: it is raised. So is the last fault.

    Args:
        task: what all ranks are given.
        events: where the user hears of it.
        launch: starts them once; of several hosts it ends alike on all.
        node: the number of this host, of several: the first one records, and all keep their ranks.

    Raises:
        TrainwrightError: as ``launch``.
    """
    how, restarts = task.recipe.train.exec, 0
    before: tuple[int, int] | None = None
    while True:
        began_s = time.monotonic()
        try:
            return launch(task)
        except OutOfMemory as error:
            if how.on_oom == "stop" or error.change is None:
                raise
            task = _adapted(task, error, error.change, events, records=not node)
        except RankFault as fault:
            if restarts >= how.max_restarts:
                raise
            restarts += 1
            step, lost_s = lost(task.out, time.monotonic() - began_s)
            # A rank that fails again before the next checkpoint is gone for good.
            gone = before == (fault.rank, step)
            before = fault.rank, step
            fewer = fewer_ranks(task.plan) if how.elastic and gone and node is None else None
            if node:
                continue
            with Events(task.out / "events.jsonl", run=events.run, listeners=events.listeners) as log:
                log.emit("restart", "train", lost_s, unit="s", step=step, text=str(fault))
                log.message(f"{fault.what}; restart {restarts} of {how.max_restarts} from step {step}")
                if fewer is not None:
                    equal = " with equal shares" if task.plan.parallel.shares else ""
                    log.message(f"rank {fault.rank} is gone: going on with {fewer.parallel.ranks} ranks{equal}")
            task = task if fewer is None else replace(task, plan=fewer)


def _adapted(task: RankTask, error: OutOfMemory, change: Change, events: Events, *, records: bool) -> RankTask:
    recipe, plan = with_change(task.recipe, task.plan, change)
    if records:
        tell(task.out, events, error.what, change)
    return replace(task, recipe=recipe, plan=plan)


def lost(out: Path, ran_s: float) -> tuple[int, float]:
    """Returns the step of the newest checkpoint, and seconds of work since: at most those that the ranks ran.

    The checkpoint's age is of the world's clock, which may have been set since.
    """
    paths = checkpoints_in(out / "checkpoints")
    if not paths:
        return 0, ran_s
    age_s = time.time() - paths[-1].stat().st_mtime
    return step_of(paths[-1]), min(max(0.0, age_s), ran_s)


def fewer_ranks(plan: Plan) -> Plan | None:
    """Returns the plan on one rank fewer along a data-parallel axis; None where there is no such axis.

    A copy less leaves every rank its memory, so that copies go first. Micro batches stay, and so does what is computed.
    Shares were of as many ranks as there were, and become equal; a pipeline of two directions stays as it is.
    """
    parallel = plan.parallel
    if parallel.schedule == "dualpipe":
        return None
    for axis in ("dp_replicate", "dp_shard"):
        ranks = getattr(parallel, axis)
        if ranks > 1:
            return replace(plan, parallel=replace(parallel, **{axis: ranks - 1}, shares=()))
    return None
