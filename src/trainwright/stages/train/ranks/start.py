"""Starts the ranks of a training on this host, listens to them, and says in one line why they ended."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import uuid
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context, StageResult
from trainwright.core.errors import TrainwrightError
from trainwright.core.records import from_json
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.summary import TrainSummary
from trainwright.stages.train.ranks.quiet import OF_THE_AGENT, no_warnings_below, quiet_loggers
from trainwright.stages.train.ranks.rank import RankTask, run_rank
from trainwright.stages.train.ranks.reports import listening
from trainwright.stages.train.ranks.restarts import with_restarts
from trainwright.stages.train.ranks.signals import LEFT_TO_THE_AGENT, Asked
from trainwright.stages.train.ranks.watch import Others, RankFault, Watch
from trainwright.stages.train.stage import result_of
from trainwright.stages.train.world import Work

LOOPBACK = "127.0.0.1"


def train_on_ranks(context: Context, plan: Plan) -> StageResult:
    """Trains with the plan's processes on this host, and returns what the first of them wrote.

    Raises:
        TrainwrightError: what a rank reported.
        TrainingError: a rank died without a word; names it.
    """

    def launched(task: RankTask) -> None:
        launch(task, _configuration(task.plan.parallel.ranks), context.events)

    with_restarts(task_of(context, plan), context.events, launched)
    return result_in(context.out, context.recipe)


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
        began_s=context.began_s,
    )


def launch(
    task: RankTask, configuration: LaunchConfig, events: Events, *, node: int = 0, others: Others | None = None
) -> None:
    """Trains with the processes that a configuration says, of this host alone or this host's of many.

    Args:
        task: what all ranks are given.
        configuration: how the agent starts them.
        events: where the first rank's go.
        node: the number of this host; each has as many ranks.
        others: hosts whose ranks train with these, if there are some.

    Raises:
        TrainwrightError: what a rank reported.
        TrainingError: a rank died without a word; names it.
    """
    here = configuration.nproc_per_node
    ranks = range(node * here, (node + 1) * here)
    errors: list[TrainwrightError] = []
    with TemporaryDirectory(prefix="trainwright-ranks-") as folder:
        configuration = replace(configuration, logs_specs=DefaultLogsSpecs(log_dir=f"{folder}/torch"))
        watch = _watch(Path(folder), task, ranks, events, others)
        asked, failed = Asked(watch), None
        try:
            quietly = no_warnings_below(), quiet_loggers(*OF_THE_AGENT)
            told = listening(here, events, errors)
            with quietly[0], quietly[1], told as reports, watch.watching(), asked.passed_on():
                elastic_launch(configuration, run_rank)(replace(task, watch=watch.folder), reports)
        except (ChildFailedError, SignalException) as failure:
            failed = failure
            if watch.fault is None and not errors and asked.first is None:
                raise (_died(failure, watch) if isinstance(failure, ChildFailedError) else failure) from failure
    if failed is not None and not errors and asked.first is not None:
        signal.raise_signal(asked.first)  # the ranks had nothing to save: it ends this process as if it had none
        raise failed
    if watch.fault is not None:
        raise watch.fault
    if errors:
        raise errors[0]


def _watch(folder: Path, task: RankTask, ranks: range, events: Events, others: Others | None) -> Watch:
    how = task.recipe.train.exec
    return Watch(
        folder=folder,
        stacks=task.out / ".stacks",
        ranks=ranks,
        hang_after_s=how.hang_after,
        slow_factor=how.slow_factor if others is None else math.inf,  # ``Stragglers`` compares those of all hosts
        events=events,
        others=others,
    )


def result_in(out: Path, recipe: Recipe) -> StageResult:
    """Returns what the first rank wrote of a finished training."""
    path = out / "summary.json"
    return result_of(from_json(TrainSummary, json.loads(path.read_text()), where=str(path)), recipe)


def _configuration(ranks: int) -> LaunchConfig:
    endpoint, local = f"{LOOPBACK}:0", LOOPBACK
    return agent(ranks, run_id=uuid.uuid4().hex, rdzv_backend="c10d", rdzv_endpoint=endpoint, local_addr=local)


def agent(ranks: int, *, nodes: int = 1, **rendezvous: Any) -> LaunchConfig:
    """Returns how torch's agent starts so many ranks on this host, one of so many nodes, which meet so."""
    return LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=ranks,
        **rendezvous,
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn",
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),  # ``launch`` names the folder, which goes with it
        signals_to_handle=LEFT_TO_THE_AGENT,
    )


def _died(failed: ChildFailedError, watch: Watch) -> RankFault:
    """Returns the error of the rank that ended first, as far as that can be told.

    Ranks whose connections close end too, and may be seen before the one that closed them, as it was ended by a signal.
    """
    failures = sorted(failed.failures.items(), key=lambda each: (not _was_ended(each[1]), _is_echo(each[1]), each[0]))
    rank, failure = failures[0] if _was_ended(failures[0][1]) else failed.get_first_failure()
    if _is_echo(failure) and not _is_echo(failures[0][1]):
        rank, failure = failures[0]
    if watch.first_dead in failed.failures:
        rank, failure = watch.first_dead, failed.failures[watch.first_dead]
    how = f"by {failure.signal_name()}" if failure.exitcode < 0 else f"with exit code {failure.exitcode}"
    fault = watch.died(rank, how, _reason(failure) or None)
    fault.echo = watch.ended_for_others or _is_echo(failure)
    return fault


def _reason(failure: ProcessFailure) -> str:
    """Returns what a rank raised, and where; empty where it had no time to say so."""
    told = failure.error_file_data.get("message", "")
    if not isinstance(told, dict):
        return ""
    calls = re.findall(r'File (".*?", line \d+, in \w+)', str(told.get("extraInfo", {}).get("py_callstack", "")))
    return str(told.get("message", "")).strip() + (f", at {calls[-1]}" if calls else "")


def _was_ended(failure: ProcessFailure) -> bool:
    """Returns whether a signal ended it that the agent does not send."""
    return failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM


def _is_echo(failure: ProcessFailure) -> bool:
    """Returns whether a rank ended because another one was gone."""
    return any(word in _reason(failure).lower() for word in ("connection", "peer", "broken pipe", "socket"))
