"""Counts of layouts whose examples are padded to unlike lengths: each length is counted as a run of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainwright.planner.counts.kernels import Kernels, Kind, RateSource
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.lengths import padded_tokens
from trainwright.spec.run import RunSpec

if TYPE_CHECKING:
    from trainwright.planner.forecast.communication.exchange import Exchange

Counts = TypeVar("Counts", "Kernels", "Exchange")
SAME_LENGTH = 1.05
"""Lengths that differ by less are counted as their mean where layouts are compared; one layout has its own."""


def kernels_of(source: RateSource, run: RunSpec, layouts: Layouts, *, without: Collection[Kind] = ()) -> Kernels:
    """Returns the seconds of kernels, of padded tokens; raises as ``RateSource.kernels``."""
    kernels = _apart(run, layouts, lambda each, some: source.kernels(each, some, without=without))
    if not run.workload.recompute_budget:
        return kernels
    return replace(kernels, recomputed=run.workload.recomputed_share(run.transformer.blocks))


def sent_of(run: RunSpec, layouts: Layouts, count: Callable[[RunSpec, Layouts], Exchange]) -> Exchange:
    """Returns what is sent: of layouts that divide data alone the same at any length, weights and their gradients."""
    divided = layouts.tp * layouts.pp * layouts.cp * layouts.ep * layouts.virtual_stages > 1
    return _apart(run, layouts, count, matters=divided)


def _apart(
    run: RunSpec,
    layouts: Layouts,
    count: Callable[[RunSpec, Layouts], Counts],
    *,
    matters: NDArray[np.bool_] | None = None,
) -> Counts:
    """Returns what ``count`` says of each layout with its padded length; where that ``matters`` not, of them together.

    ``matters`` is [L]; None: everywhere.
    """
    if run.workload.example_tokens is None or not len(layouts):
        return count(run, layouts)
    tokens = padded_tokens(run.workload, layouts)
    steps = np.round(np.log(tokens) / np.log(SAME_LENGTH))
    if matters is not None:
        steps = np.where(matters, steps, 0.0)
    groups = [np.flatnonzero(steps == each) for each in np.unique(steps)]
    parts = [count(padded(run, float(np.mean(tokens[group]))), layouts.take(group)) for group in groups]
    return _joined(parts, groups, len(layouts))


def padded(run: RunSpec, tokens: float) -> RunSpec:
    """Returns the run with as many sequences, all of so many tokens."""
    each = max(1, round(tokens))
    work = replace(
        run.workload, sequence_tokens=each, batch_tokens=run.workload.batch_sequences * each, example_tokens=None
    )
    return replace(run, workload=work)


def padded_run(run: RunSpec, layouts: Layouts) -> RunSpec:
    """Returns the run as the first of the layouts computes it."""
    return run if run.workload.example_tokens is None else padded(run, float(padded_tokens(run.workload, layouts)[0]))


def _joined(parts: list[Counts], groups: list[np.ndarray], size: int) -> Counts:
    """Returns the parts' numbers at the places of their groups."""
    if len(parts) == 1:
        return parts[0]
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(parts[0]) if getattr(parts[0], field.name) is not None):
        values[name] = np.empty(size)
        for part, group in zip(parts, groups, strict=True):
            values[name][group] = getattr(part, name)
    return replace(parts[0], **values)
