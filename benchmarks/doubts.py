"""How far a prediction may lie off where the fit has seen nothing like it: by source, and by kind of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trainwright.hardware.catalogue.efficiency import generation, read_efficiency
from trainwright.planner.counts.between import NARROW
from trainwright.planner.evidence.published_run import Row
from trainwright.planner.rates.catalogue import PRIOR_ROWS, SIXTEEN_BIT, kinds_of_doubt
from trainwright.planner.rates.catalogue import doubts as doubts_of
from trainwright.spec.plan import INTERVAL

Errors = NDArray[np.float64]

PRIOR_SPREAD = 0.3
"""Log error of a stack that no row was fitted to, worth ``PRIOR_ROWS`` rows."""
GENERATION = 0.3
"""Log error added for a generation of devices without rows: that of a stack without rows."""
BORROWED = 0.15
"""Log error added for a stack with the numbers of another: half of what one without any has."""
BEYOND = 0.1
"""Log error added for each doubling of lengths, steps or sizes outside of what the rows have: assumed."""
FOLLOWS = 1.2816
"""Standard deviations within which eight of ten of a normal distribution lie."""


def summary(errors: Errors) -> str:
    """Median and 90th percentile of the error of tokens per second."""
    median, ninety = figures(errors)
    bias = np.expm1(-np.median(errors))
    return f"n {len(errors):4d}  median {median:6.1%}  p90 {ninety:7.1%}  bias {bias:+6.1%}"


def figures(errors: Errors) -> tuple[float, float]:
    """Median and 90th percentile of the error of tokens per second."""
    size = np.abs(np.expm1(-errors))
    return (float(np.median(size)), float(np.quantile(size, 0.9))) if len(size) else (0.0, 0.0)


def is_plain(row: Row) -> bool:
    """True of a dense decoder that trains all weights in 16 bits."""
    work = row.placed.run.workload
    return row.model_class == "decoder" and work.precision in SIXTEEN_BIT and work.adapter is None


def kind_of_work(row: Row, task: str) -> str:
    """The kind of work of a row whose notes say ``task``."""
    work = row.placed.run.workload
    if work.adapter is not None:
        return "adapters"
    if row.model_class != "decoder":
        return {"moe": "mixtures", "encoder": "encoders"}[row.model_class]
    if work.precision in NARROW:
        return "low precision"
    return "pretraining" if task == "pretrain" else "full tuning"


def deviation(errors: Errors) -> float:
    """The standard deviation whose normal distribution has the errors' 80th percentile."""
    return float(np.quantile(np.abs(errors), 0.8)) / FOLLOWS


def spread(errors: Errors) -> float:
    """The deviation of the errors; widened where rows are few.

    The prior is that of sources left out: what is not known of a stack is as uncertain as a stack that is not known.
    """
    count = len(errors)
    own = deviation(errors) if count else PRIOR_SPREAD
    return float(np.sqrt((count * own**2 + PRIOR_ROWS * PRIOR_SPREAD**2) / (count + PRIOR_ROWS)))


def doubts(rows: Sequence[Row], folds: Errors, left_out: Errors, unseen: Errors) -> dict[str, float]:
    """What is added to a stack's own deviation, in squares: for every run, and for each kind of work.

    ``source`` is what errors of plain rows grow by when their source is left out of the fit; ``untuned`` what they grow
    by when all rows of their stack on their generation of devices are, ``unseen``; a kind's number what its rows are
    worse by than plain ones. Each source counts as one.
    """
    of = [frozenset(kinds_of_doubt(row.placed.run)) for row in rows]
    sources = np.array([row.source.partition("@")[0] for row in rows])

    def squared(errors: Errors, mask: NDArray[np.bool_]) -> float:
        groups = [errors[mask & (sources == name)] for name in sorted(set(sources[mask]))]
        return float(np.median([deviation(group) ** 2 for group in groups]))

    plain = np.array([not kinds for kinds in of])
    base = squared(left_out, plain)
    known = squared(folds, plain)
    found = {
        "source": base - known,
        "untuned": squared(unseen, plain) - base,
        "generation": GENERATION**2,
        "borrowed": BORROWED**2,
        "beyond": BEYOND**2,
    }
    for kind in sorted({kind for kinds in of for kind in kinds}):
        found[kind] = squared(left_out, np.array([kinds == {kind} for kinds in of])) - base
    return {name: float(np.sqrt(max(0.0, value))) for name, value in found.items()}


def covered(rows: Sequence[Row], left_out: Errors, spreads: Errors) -> str:
    """How many rows lie inside the range that they would get with their source left out, and how wide it is."""
    inside = np.abs(left_out) <= INTERVAL * spreads
    plain = np.array([not tuple(kinds_of_doubt(row.placed.run)) for row in rows])
    names = np.array([row.source.partition("@")[0] for row in rows])
    by_source = np.mean([inside[names == name].mean() for name in set(names)])
    wide = np.exp(2 * INTERVAL * np.median(spreads[plain]))
    return f"in range {inside.mean():.0%} of rows, {by_source:.0%} by source; slow over fast of plain ones {wide:.2f}"


def left_out_spreads(rows: Sequence[Row], folds: Errors, doubt: dict[str, float]) -> Errors:
    """The deviation that each row's range would have without its source: its stack's from other sources' rows."""
    stacks = np.array([row.placed.run.stack.time_of for row in rows])
    sources = np.array([row.source.partition("@")[0] for row in rows])
    generations = np.array([generation(row.placed.run.cluster.device) for row in rows])
    general, found = read_efficiency(), []
    for row, stack, source in zip(rows, stacks, sources, strict=True):
        mine = spread(folds[(stacks == stack) & (sources != source)])
        run, elsewhere = row.placed.run, sources != source
        time = replace(run.stack.time, seen=tuple(set(generations[elsewhere & (stacks == stack)])))
        known = replace(general, rows=Counter(generations[elsewhere]), doubt=doubt)
        added = doubts_of(replace(run, stack=replace(run.stack, time=time)), known)
        found.append(float(np.hypot(mine, np.linalg.norm([*added]))))
    return np.array(found)
