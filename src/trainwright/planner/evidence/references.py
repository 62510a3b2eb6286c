"""Finished runs of our own ledger as measured runs of a cluster: those of its device, with our own stack."""

from __future__ import annotations

from trainwright.core.errors import about
from trainwright.hardware.catalogue.devices import find_device
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import OURS
from trainwright.hardware.catalogue.stacks import stack as stack_named
from trainwright.planner.evidence.finished import FinishedRun, Ledger
from trainwright.planner.evidence.published_run import row_of
from trainwright.planner.evidence.report import judge_all, references
from trainwright.planner.rates.learnt import Reference

NEWEST = 32
"""Runs that a plan learns from at most."""


def finished_runs(ledger: Ledger, *, on: str, stack: str) -> tuple[tuple[Reference, ...], tuple[FinishedRun, ...]]:
    """Returns the ledger's newest runs that inform about a cluster, as references and as they stand there.

    Raises:
        RecipeError: an unknown device or stack.
    """
    with about("on"):
        device = cluster(on).device.name
    with about("stack"):
        software = stack_named(stack).name
    known: list[Reference] = []
    used: list[FinishedRun] = []
    for run in ledger.runs if software == OURS else ():
        there = find_device(run.device)
        if len(used) == NEWEST or there is None or there.name != device:
            continue
        judged, _ = judge_all([row_of(run, line=1)])
        if judged:
            known += references(judged)
            used.append(run)
    return tuple(known), tuple(used)
