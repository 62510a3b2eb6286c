"""Finished runs of our own ledgers, as measured runs that correct a plan.

Each run is predicted anew, from the rates that the plan uses: what its measured step and peak were off by is what
``planner.rates.learnt`` learns from. A plan of this machine, or of several like it, learns from the runs of this
machine, another plan from the runs of its device.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwright.core.errors import TrainwrightError, about
from trainwright.core.frozen import dataclass
from trainwright.core.units import format_bytes
from trainwright.hardware.catalogue.devices import find_device
from trainwright.hardware.catalogue.stacks import OURS, stack
from trainwright.planner.counts.kernels import RateSource
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.evidence.finished import FinishedRun, Ledger, placed_run, runs_as_text
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.plan.question import Question
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.rates.learnt import Reference
from trainwright.spec.device import ClusterSpec
from trainwright.spec.run import PlacedRun
from trainwright.spec.stack import Stack

if TYPE_CHECKING:  # its measurements are read by pydantic, which a plan of another cluster does not wait for
    from trainwright.planner.plan.machine import Here

NEWEST = 64
"""Runs that a plan learns from at most, the newest: a millisecond for each."""
SHORT_S = 10.0
"""Steps of fewer seconds in all show how a process warms up: of 20 steps in 1.5 s the first half ran at half the speed
of the second (docs/lab/log.md)."""
SAME_MEMORY = 0.05
"""Machines whose memory differs by less than this share are one: kernels reserve more or less of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class References:
    """Finished runs with what their predictions were off by, and why others were left out."""

    references: tuple[Reference, ...] = ()
    text: str = ""
    left_out: tuple[str, ...] = ()


def experienced(question: Question, ledger: Ledger) -> Question:
    """Returns the question with the ledger's runs on its device with its stack, where there are any.

    Raises:
        RecipeError: an unknown device, link or stack.
    """
    here = question.here
    with about("stack"):
        software = stack(question.stack)
    machines = question.cluster() if here is None else here.cluster
    learnt = references_of(ledger, machines, software, question.unmeasured, here=here)
    if here is None and not learnt.references:
        return question
    return replace(question, references=learnt.references, references_from=learnt.text, left_out=learnt.left_out)


def references_of(
    ledger: Ledger, machines: ClusterSpec, software: Stack, unmeasured: Mapping[str, str], *, here: Here | None = None
) -> References:
    """Returns the ledger's runs that inform about a plan.

    Args:
        ledger: newest runs first.
        machines: what is planned for.
        software: what is planned for; all runs of a ledger are of our own.
        unmeasured: what of the plan is counted as another; runs with no other such part inform about it.
        here: this machine, whose one device ``machines`` is; None: a cluster of the catalogue.
    """
    reasons: Counter[str] = Counter()
    used: list[FinishedRun] = []
    references: list[Reference] = []
    for run in ledger.runs:
        elsewhere = _other_device(run, machines) if here is None else _foreign(run, here)
        reason = elsewhere if software.name == OURS else f"with software {OURS!r}"
        reason = reason or run.unlike(unmeasured)
        if reason is None and len(used) == NEWEST:
            reason = f"older than the newest {NEWEST}"
        if reason is None:
            try:
                placed = placed_run(run, None if here is None else machines)
                references.append(_reference(run, placed, CATALOGUE if here is None else here.source))
                used.append(run)
            except TrainwrightError as error:
                reason = f"cannot be predicted: {error}"
        if reason is not None:
            reasons[reason] += 1
    left_out = [f"{count} left out: {reason}" for reason, count in reasons.items()]
    if ledger.broken:
        count = len(ledger.broken)
        left_out.append(f"{count} line{'s' if count > 1 else ''} that cannot be read skipped")
    if short := sum(each.log_speed is None for each in references):
        left_out.append(f"{short} shorter than {SHORT_S:.0f} s: {'its' if short == 1 else 'their'} memory counts alone")
    text = f"calibrated by {runs_as_text(used)}"
    return References(references=tuple(references), text=text, left_out=tuple(left_out))


def _reference(run: FinishedRun, placed: PlacedRun, source: RateSource) -> Reference:
    """Returns the run with what today's prediction of it is off by; a short one says nothing about time."""
    predicted = forecast(placed.run, Layouts.one(placed), source)
    peak_bytes = predicted.memory.reported(placed.run.stack.memory.reports, placed.run.cluster.device)
    short = run.step_s * run.workload.steps < SHORT_S
    return Reference(
        placed=placed,
        log_speed=None if short else math.log(float(predicted.step_s[0]) / run.step_s),
        log_memory=math.log(run.peak_bytes / float(peak_bytes[0])),
    )


def _other_device(run: FinishedRun, machines: ClusterSpec) -> str | None:
    """Returns the reason why a run says nothing about a device of the catalogue; None where it does."""
    device = find_device(run.device)
    return None if device is not None and device.name == machines.device.name else f"on another device ({run.device})"


def _foreign(run: FinishedRun, here: Here) -> str | None:
    """Returns the reason why a run says nothing about this machine; None where it does."""
    machine, node = here.cluster, here.cluster.node
    if (run.device, run.devices, run.cores) != (machine.device.name, machine.devices, node.cpu_cores):
        cores = "" if run.cores is None else f", {run.cores} cores"
        return f"of another machine ({run.device}{cores})"
    memory = node.host_memory_bytes or 0
    if not run.host_memory_bytes or abs(run.host_memory_bytes / memory - 1) > SAME_MEMORY:
        return f"of another machine (memory {format_bytes(run.host_memory_bytes or 0)})"
    if _release(run.torch) != _release(here.facts.torch):
        return f"of another torch ({run.torch})"
    if run.parallel.threads != here.threads:
        return f"with {run.parallel.threads} threads in place of {here.threads}"
    if run.workload.precision not in machine.device.flops_per_s:
        return f"in {run.workload.precision}, which was not probed here"
    return None


def _release(version: str | None) -> str | None:
    """Returns ``2.9`` of ``2.9.1+cpu``: speed differs from release to release."""
    return None if version is None else ".".join(version.split("+")[0].split(".")[:2])
