"""Finished runs of our own ledger as measured runs of a cluster: those of its device, with our own stack."""

from __future__ import annotations

from trainwright.hardware.catalogue import find_device
from trainwright.hardware.nodes import cluster
from trainwright.hardware.stacks import stack as stack_named
from trainwright.planner.calibration import Reference
from trainwright.planner.published.finished import FinishedRun, Ledger
from trainwright.planner.published.ledger import as_run
from trainwright.planner.published.question import questions
from trainwright.planner.published.report import judge_all, references
from trainwright.planner.published.rows import Record, as_printed

NEWEST = 32
"""Runs that a plan learns from at most."""
OURS = "trainwright"
"""The stack that ledgers are of."""


def finished_runs(ledger: Ledger, *, on: str, stack: str) -> tuple[tuple[Reference, ...], tuple[FinishedRun, ...]]:
    """The newest of the ledger's runs that say something about a cluster, as references and as they stand there.

    Raises:
        RecipeError: an unknown device or stack.
    """
    device, software = cluster(on, where="--on").device.name, stack_named(stack, where="--stack").name
    known: list[Reference] = []
    used: list[FinishedRun] = []
    for run in ledger.runs if software == OURS else ():
        there = find_device(run.device)
        if len(used) == NEWEST or there is None or there.name != device:
            continue
        values = {name: as_printed(value) for name, value in as_run(run.line).items()}
        judged, _ = judge_all(questions([Record(line=1, values=values, notes={})])[0])
        if judged:
            known += references(judged)
            used.append(run)
    return tuple(known), tuple(used)
