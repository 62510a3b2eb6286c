"""One rank: joins the others, trains its part, and tells the process that started it what happened."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.rendezvous import rendezvous

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.artifact.store import open_artifact, writing
from trainwright.core.errors import Interrupted, MachineError, TrainwrightError
from trainwright.launch.parent import end_with_parent
from trainwright.runtime.device import choose
from trainwright.runtime.faults.beat import beating
from trainwright.runtime.mesh import Found, joined
from trainwright.spec.device import DeviceKind
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.stages.train.ranks.reports import Reporter
from trainwright.stages.train.ranks.world import world_of
from trainwright.stages.train.stage import train
from trainwright.stages.train.world import Follow, Work


@dataclass(frozen=True, kw_only=True)
class RankTask:
    """What every rank is given: a stage's context, without what only the starting process has."""

    recipe: Recipe
    plan: Plan
    inputs: Mapping[str, Path]
    digests: Mapping[str, str]
    out: Path
    root: Path
    began_s: float = field(default_factory=time.monotonic)
    """When this host's command began to train, by ``time.monotonic``: restarts have the time limit of that."""
    group: str = ""
    """The training's name among those of one meeting; alone on a host it needs none."""
    work: Work = train
    """What each of them does."""
    watch: Path | None = None
    """Where the process that started them looks how ranks are; None: nobody watches."""


def run_rank(task: RankTask, pipes: Sequence[Connection]) -> None:
    """Trains as one rank of the group that the environment names; the first rank's events go to its pipe.

    An error that a user can mend goes there too, and the process ends with its exit code.
    """
    try:
        _run(task, pipes)
    except Exception as error:  # torch has recorded it; were it to catch it, it would leave a file in TMPDIR
        raise SystemExit(1) from error


@record
def _run(task: RankTask, pipes: Sequence[Connection]) -> None:
    _belong_to_parent()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    reports = Reporter(pipes, local_rank)
    events = Events(None, run=task.recipe.name, listeners=(reports.put,) if rank == 0 else (), rank=rank)
    try:
        with beating(task.watch, rank, task.recipe.train.exec.hang_after) as beat:
            follow = None if beat is None else beat.follow
            train_as_rank(task, events, local_rank=local_rank, found=_found(task.group), follow=follow)
    except Interrupted as error:
        reports.put(error)  # all ranks agreed to stop: each ends by itself
    except TrainwrightError as error:
        reports.put(error)
        sys.exit(error.exit_code)


def train_as_rank(
    task: RankTask, events: Events, *, local_rank: int, found: Found | None, follow: Follow | None = None
) -> None:
    """Trains in this process, as one rank of the group that it finds.

    Args:
        task: what all ranks are given.
        events: where this one reports.
        local_rank: its number on this host.
        found: as ``runtime.mesh.joined`` takes it.
        follow: is told how to see where training stands.

    Raises:
        TrainwrightError: as ``train``; MachineError, where the system refuses to write.
    """
    inputs = {role: open_artifact(path) for role, path in task.inputs.items()}
    context = Context(
        recipe=task.recipe,
        inputs=inputs,
        digests=task.digests,
        out=task.out,
        root=task.root,
        events=events,
        began_s=task.began_s,
    )
    device = _device(task.plan.cluster.device.kind, local_rank)
    with writing(task.out), joined(task.plan.parallel, device, found) as mesh:
        world = world_of(mesh, batch_sequences=task.plan.workload.batch_sequences)
        if follow is not None:
            world.follow = follow
        if task.group:  # several commands
            world.stragglers.name_beyond(task.recipe.train.exec.slow_factor, world.gathered(socket.gethostname()))
        task.work(context, task.plan, world)
        world.close()


def _found(group: str) -> Found | None:
    """Returns the group that the environment names, under a name of its own: its store may serve several trainings."""
    if not group:
        return None
    store, rank, ranks = next(rendezvous("env://"))
    return PrefixStore(group, store), rank, ranks


def _device(kind: DeviceKind, index: int) -> torch.device:
    """Returns this rank's device: of several that it sees that of its number on the host, else the one.

    Raises:
        MachineError: it sees several, and none has its number.
    """
    if kind == "cpu":
        return torch.device("cpu")
    chosen, seen = choose(kind).torch_device, torch.accelerator.device_count()
    index = 0 if seen == 1 else index  # a launcher may show each rank its own alone
    if index >= seen:
        raise MachineError(
            "no device is left for rank {index} of this host, counted from 0",
            where="train.exec.layout",
            seen=f"{seen} of {chosen.type}",
            fix="start as many ranks on a host as it has devices",
            index=index,
        )
    torch.accelerator.set_device_index(index)
    return torch.device(chosen.type, index)


def _belong_to_parent() -> None:
    """Leaves the terminal's signals to the process that started this one, and ends with it, however it ends.

    Until training listens a Ctrl-C ends this one without a word; one that waited since before ends it now.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    end_with_parent()
