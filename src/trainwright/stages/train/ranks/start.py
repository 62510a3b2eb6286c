"""Starts the ranks of a training on this host, listens to them, and says in one line why they ended."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import FrameType
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context, StageResult
from trainwright.core.errors import TrainingError, TrainwrightError
from trainwright.core.records import from_json
from trainwright.spec.event import Event
from trainwright.spec.plan import Plan
from trainwright.spec.summary import TrainSummary
from trainwright.stages.train.ranks.rank import RankTask, run_rank
from trainwright.stages.train.stage import result_of
from trainwright.stages.train.world import Work

LOOPBACK = "127.0.0.1"
_UNIX_SIGNALS = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGQUIT", "SIGUSR1") if hasattr(signal, name))


def train_on_ranks(context: Context, plan: Plan) -> StageResult:
    """Trains with the plan's processes on this host, and returns what the first of them wrote.

    Raises:
        TrainwrightError: what a rank reported.
        TrainingError: a rank died without a word; names it.
    """
    launch(task_of(context, plan), _configuration(plan.parallel.ranks), context.events)
    return result_in(context.out)


def work_on_ranks(context: Context, plan: Plan, work: Work) -> None:
    """Lets the plan's processes on this host do a piece of work; raises as ``train_on_ranks``."""
    launch(replace(task_of(context, plan), work=work), _configuration(plan.parallel.ranks), context.events)


def task_of(context: Context, plan: Plan) -> RankTask:
    """Returns what the ranks of a stage are given."""
    return RankTask(
        recipe=context.recipe,
        plan=plan,
        inputs={role: artifact.path for role, artifact in context.inputs.items()},
        digests=context.digests,
        out=context.out,
        root=context.root,
    )


def launch(task: RankTask, configuration: LaunchConfig, events: Events) -> None:
    """Trains with the processes that a configuration says, of this host alone or this host's of many.

    Raises:
        TrainwrightError: what a rank reported.
        TrainingError: a rank died without a word; names it.
    """
    reports: SimpleQueue[Any] = multiprocessing.get_context("spawn").SimpleQueue()
    errors: list[TrainwrightError] = []
    try:
        with _same_signals(), _quiet_agent(), _listening(reports, events, errors):
            elastic_launch(configuration, run_rank)(task, reports)
    except (ChildFailedError, SignalException) as failure:
        if not errors:
            raise (_died(failure) if isinstance(failure, ChildFailedError) else failure) from failure
    if errors:
        raise errors[0]


def result_in(out: Path) -> StageResult:
    """Returns what the first rank wrote of a finished training."""
    path = out / "summary.json"
    return result_of(from_json(TrainSummary, json.loads(path.read_text()), where=str(path)))


def _configuration(ranks: int) -> LaunchConfig:
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{LOOPBACK}:0",
        local_addr=LOOPBACK,
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn",
        logs_specs=DefaultLogsSpecs(),
    )


@contextmanager
def _listening(reports: SimpleQueue[Any], events: Events, errors: list[TrainwrightError]) -> Iterator[None]:
    """Passes the first rank's events on and collects errors, for as long as the ranks run."""

    def listen() -> None:
        while (report := reports.get()) is not None:
            if isinstance(report, Event):
                for listener in events.listeners:
                    listener(report)
            else:
                errors.append(report)

    thread = threading.Thread(target=listen, name="ranks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        reports.put(None)
        thread.join()


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """Leaves the telling to us: torch's agent logs a page for each rank that ends."""
    agent = logging.getLogger("torch.distributed.elastic")
    before = agent.level
    agent.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        agent.setLevel(before)


@contextmanager
def _same_signals() -> Iterator[None]:
    """Gives signals back to who had them: torch's agent takes them for good, and later stages wait for theirs."""
    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, *_UNIX_SIGNALS)}
    if in_main:
        signal.signal(signal.SIGUSR1, _pass_on)
    try:
        yield
    finally:
        if in_main:
            for number, handler in before.items():
                signal.signal(number, handler)


def _pass_on(number: int, _frame: FrameType | None) -> None:
    """Gives a scheduler's warning to the ranks, which save and end by themselves; torch's agent does not."""
    for rank in multiprocessing.active_children():
        if rank.pid is not None:
            os.kill(rank.pid, number)


def _died(failed: ChildFailedError) -> TrainingError:
    """Returns the error of the rank that ended first."""
    rank, failure = failed.get_first_failure()
    how = f"by {failure.signal_name()}" if failure.exitcode < 0 else f"with exit code {failure.exitcode}"
    told = failure.error_file_data.get("message", "")
    reason = str(told.get("message", "") if isinstance(told, dict) else told).strip()
    return TrainingError(
        "rank {rank} ended {how}; all ranks were ended",
        where="train",
        seen=reason or None,
        fix="run the same command to go on from the last checkpoint",
        rank=rank,
        how=how,
    )
