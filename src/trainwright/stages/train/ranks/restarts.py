"""Restarts a job whose rank died or hangs, from its last checkpoint, on fewer ranks or hosts where one is gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.artifact.checkpoint.index import checkpoints_in, step_of
from trainwright.artifact.events import Events
from trainwright.core.frozen import dataclass
from trainwright.core.spelling import counted
from trainwright.spec.plan import Plan
from trainwright.spec.workload import DATA_AXES
from trainwright.stages.train.faults.memory import Change, OutOfMemory, tell, with_change
from trainwright.stages.train.ranks.rank import RankTask
from trainwright.stages.train.ranks.watch import HostsGone, RankFault

NEEDED = "train.exec.elastic leaves out copies or shards that others can do without, and never node 0, where all meet"


@dataclass(frozen=True, slots=True)
class Several:
    """This host among those that train together.

    Attributes:
        node: its number: the first one records, and all begin again alike.
        agreed: whether a rank is gone, as the first one has seen it: not all see a checkpoint at the same moment.
        without: leaves the host of a fault out from now on, and returns the plan of the others; None where they cannot.
    """

    node: int
    agreed: Callable[[bool], bool]
    without: Callable[[RankFault | HostsGone, Plan], Plan | None]


def with_restarts(
    task: RankTask, events: Events, launch: Callable[[RankTask], None], *, several: Several | None = None
) -> None:
    """Launches a task until it ends, as often as the recipe allows.

    What a rank reports is the user's to mend and would come again: it is raised. So is the last fault.

    Args:
        task: what all ranks are given.
        events: where the user hears of it.
        launch: starts them once; of several hosts it ends alike on all.
        several: the hosts, where there are some.

    Raises:
        TrainwrightError: as ``launch``.
    """
    how, restarts, records = task.recipe.train.exec, 0, several is None or several.node == 0
    before: tuple[int, int] | None = None
    while True:
        began_s = time.monotonic()
        try:
            return launch(task)
        except OutOfMemory as error:
            if how.on_oom == "stop" or error.change is None:
                raise
            task = _adapted(task, error, error.change, events, records=records)
        except (RankFault, HostsGone) as fault:
            if restarts >= how.max_restarts:
                raise
            restarts += 1
            step, lost_s = lost(task.out, time.monotonic() - began_s)
            rank = fault.rank if isinstance(fault, RankFault) else None
            # A rank that fails again before the next checkpoint is gone for good, as a silent host is.
            gone = rank is None or _agreed(several, before == (rank, step))
            fewer = _without(fault, task.plan, several) if how.elastic and gone else None
            before = None if rank is None or fewer is not None else (rank, step)  # whose numbers are others then
            if rank is None and fewer is None:
                if how.elastic:
                    raise fault.with_fix(f"{fault.fix}; {NEEDED}") from None
                raise
            if records:
                again = f"restart {restarts} of {how.max_restarts}"
                left_out = _left_out(fault, task.plan, fewer) if how.elastic and gone else None
                _record(task, events, fault, again=again, step=step, lost_s=lost_s, left_out=left_out)
            task = task if fewer is None else replace(task, plan=fewer)


def _agreed(several: Several | None, gone: bool) -> bool:
    return gone if several is None else several.agreed(gone)


def _without(fault: RankFault | HostsGone, plan: Plan, several: Several | None) -> Plan | None:
    return fewer_ranks(plan) if several is None else several.without(fault, plan)


def _left_out(fault: RankFault | HostsGone, plan: Plan, fewer: Plan | None) -> str:
    """Returns who is left out from now on, or that nobody can be."""
    if isinstance(fault, RankFault):
        who = f"rank {fault.rank} is gone"
    else:
        nodes = ", ".join(f"node {host.came}" for host in fault.hosts)
        who = f"{nodes} {'is' if len(fault.hosts) == 1 else 'are'} gone"
    if fewer is None:
        return f"{who}, and not left out: {NEEDED}"
    equal = " with equal shares" if plan.parallel.shares else ""
    return f"{who}: going on with {counted(fewer.parallel.ranks, 'rank')}{equal}"


def _record(
    task: RankTask,
    events: Events,
    fault: RankFault | HostsGone,
    *,
    again: str,
    step: int,
    lost_s: float,
    left_out: str | None,
) -> None:
    with Events(task.out / "events.jsonl", run=events.run, listeners=events.listeners) as log:
        log.emit("restart", "train", lost_s, unit="s", step=step, text=str(fault))
        log.message(f"{fault.what}; {again} from step {step}")
        if left_out is not None:
            log.message(left_out)


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
    Where ranks share experts, so many go that the others can. Shares were of as many ranks as there were, and become
    equal; a pipeline of two directions stays as it is.
    """
    for axis in DATA_AXES:
        for ranks in range(getattr(plan.parallel, axis) - 1, 0, -1):
            if (fewer := _along(plan, axis, ranks)) is not None:
                return fewer
    return None


def on_fewer_hosts(plan: Plan, hosts: int, *, gone: int = 1) -> Plan | None:
    """Returns the plan without ``gone`` of ``hosts`` hosts, as many ranks on each; None where no data axis is so."""
    for axis in DATA_AXES:
        ranks = getattr(plan.parallel, axis)
        fewer = _along(plan, axis, ranks - ranks // hosts * gone) if ranks > 1 and ranks % hosts == 0 else None
        if fewer is not None:
            return fewer
    return None


def _along(plan: Plan, axis: str, ranks: int) -> Plan | None:
    """Returns the plan with so many ranks along an axis; None where its schedule or its experts do not allow it."""
    changes: dict[str, Any] = {axis: ranks, "shares": ()}
    parallel = replace(plan.parallel, **changes)
    if parallel.schedule == "dualpipe" or not parallel.experts_fit:
        return None
    return replace(plan, parallel=parallel)
