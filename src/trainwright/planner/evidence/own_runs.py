"""Finished runs of this machine, as measured runs that correct a plan of it.

Each run of the ledger is predicted anew, as the plan is, from today's probes or facts: what its measured step and peak
were off by is what ``planner.rates.learnt`` learns from, with the priors of one's own machine.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from trainwright.core.units import format_bytes
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.evidence.finished import FinishedRun, Ledger, runs_as_text
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.forecast.source import RateSource
from trainwright.planner.rates.learnt import Reference
from trainwright.spec.device import ClusterSpec
from trainwright.spec.run import PlacedRun, RunSpec
from trainwright.spec.workload import ParallelPlan

NEWEST = 64
"""Runs that a plan learns from at most, the newest: a millisecond for each."""
SAME_MEMORY = 0.05
"""Machines whose memory differs by less than this share are one: kernels reserve more or less of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnRuns:
    """Runs of this machine with what their predictions were off by, and why others were left out."""

    references: tuple[Reference, ...] = ()
    text: str = ""
    left_out: tuple[str, ...] = ()


def own_runs(ledger: Ledger, asked: RunSpec, source: RateSource, *, torch: str | None, threads: int | None) -> OwnRuns:
    """Returns the ledger's runs on the machine that is asked about.

    Args:
        ledger: newest runs first.
        asked: a run on this machine.
        source: predicts the runs.
        torch: the version here; patch releases are one.
        threads: of a CPU's process.
    """
    reasons: Counter[str] = Counter()
    used: list[FinishedRun] = []
    for run in ledger.runs:
        reason = _foreign(run, asked.cluster, torch=torch, threads=threads)
        if reason is None and len(used) == NEWEST:
            reason = f"older than the newest {NEWEST}"
        if reason is None:
            used.append(run)
        else:
            reasons[reason] += 1
    left_out = [f"{count} left out: {reason}" for reason, count in reasons.items()]
    if ledger.broken:
        count = len(ledger.broken)
        left_out.append(f"{count} line{'s' if count > 1 else ''} that cannot be read skipped")
    return OwnRuns(
        references=tuple(_reference(run, asked, source) for run in used),
        text=f"calibrated by {runs_as_text(used)}",
        left_out=tuple(left_out),
    )


def _reference(run: FinishedRun, asked: RunSpec, source: RateSource) -> Reference:
    """Returns the run with what today's prediction of it is off by."""
    spec = RunSpec(model=run.model, workload=run.workload, cluster=asked.cluster, stack=asked.stack)
    parallel = ParallelPlan(micro_batch_sequences=run.micro_batch, compile=run.compile)
    placed = PlacedRun(run=spec, parallel=parallel)
    predicted = forecast(spec, Layouts.one(placed), source)
    return Reference(
        placed=placed,
        log_speed=math.log(float(predicted.step_s[0]) / run.step_s),
        log_memory=math.log(run.peak_bytes / float(predicted.memory.device_bytes[0])),
    )


def _foreign(run: FinishedRun, here: ClusterSpec, *, torch: str | None, threads: int | None) -> str | None:
    """Returns the reason why a run says nothing about this machine; None where it does."""
    node = here.node
    if (run.device, run.devices, run.cores) != (here.device.name, here.devices, node.cpu_cores):
        cores = "" if run.cores is None else f", {run.cores} cores"
        return f"of another machine ({run.device}{cores})"
    memory = node.host_memory_bytes or 0
    if not run.host_memory_bytes or abs(run.host_memory_bytes / memory - 1) > SAME_MEMORY:
        return f"of another machine (memory {format_bytes(run.host_memory_bytes or 0)})"
    if _release(run.torch) != _release(torch):
        return f"of another torch ({run.torch})"
    if run.threads != threads:
        return f"with {run.threads} threads in place of {threads}"
    if run.workload.precision not in here.device.flops_per_s:
        return f"in {run.workload.precision}, which was not probed here"
    return None


def _release(version: str | None) -> str | None:
    """Returns ``2.9`` of ``2.9.1+cpu``: speed differs from release to release."""
    return None if version is None else ".".join(version.split("+")[0].split(".")[:2])
