"""What a pipeline does not run, known before any process starts; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from trainwright.spec.workload import ParallelPlan, Recompute

SPLITS_FROM = (2, 13)
"""The torch that splits backward passes of functions with a derivative of their own; 2.11 asks for what they lack."""
SPLIT_BACKWARD = frozenset(("zero_bubble", "dualpipe"))
"""Schedules that compute gradients of a stage's inputs before those of its weights."""


def refusals(parallel: ParallelPlan, recompute: Recompute, blocks: int | None) -> Iterator[str]:
    """Yields what torch's schedules do not run."""
    name = f"schedule={parallel.schedule}"
    stages = 2 * parallel.pp  # of a rank it runs two, where DualPipe of the paper has each stage on two ranks
    if parallel.schedule == "dualpipe" and blocks is not None and stages > blocks:
        yield f"{name}: {stages} stages for {blocks} blocks; set pp={blocks // 2}"
    if parallel.schedule in SPLIT_BACKWARD and not splits():
        here = ".".join(map(str, SPLITS_FROM))
        yield f"{name}: this torch does not split backward passes of blocks; set schedule=1f1b, or take torch {here}"
    if parallel.virtual_stages > 1 and parallel.schedule != "interleaved":
        chunks = f"virtual_stages={parallel.virtual_stages}"
        yield f"{chunks}: {name} has one stage on a rank; set schedule=interleaved or virtual_stages=1"
    if parallel.zero_stage == 2:
        yield "zero_stage=2: a pipeline adds up whole gradients over its micro batches; set zero_stage=1"
    if parallel.schedule in SPLIT_BACKWARD and parallel.compile:
        yield f"compile=True: {name} splits the backward pass, and compiled blocks run it in one; set compile=False"
    if parallel.schedule in SPLIT_BACKWARD and recompute != "none":
        yield f"{name}: it would compute a block again for each of its matrices; set recompute=none or schedule=1f1b"


@cache
def splits() -> bool:
    """Returns whether the torch that is here splits backward passes, or is none: a plan for elsewhere."""
    try:
        release = version("torch").split(".")
    except PackageNotFoundError:
        return True
    return (int(release[0]), int(release[1])) >= SPLITS_FROM
