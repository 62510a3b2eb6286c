"""How full the fullest rank of experts is; arrays are [L] over layouts."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.spec.model import Balance, ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

VIOLATION: dict[Balance, float] = {"loss": 0.62, "bias": 0.04}
"""The fullest expert's load over the mean, less one (Wang et al., 2024, arXiv 2408.15664, table 2, the mean of its two
models of 1 and 3 B parameters; recall)."""
VIOLATION_EXPERTS = 64
"""Experts of those models."""


def fullest(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the fullest expert-parallel rank's load over the mean: what all others wait for.

    ``Workload.expert_imbalance`` where it is given. Else the expected largest of ``ep`` normal loads, whose relative
    variance is that of experts that are not equally popular (``VIOLATION``), averaged over a rank's own, and that of
    drawing so many tokens. Without expert parallelism nobody waits.
    """
    experts = model.experts
    alone = np.ones(len(layouts))
    if experts is None:
        return alone
    if workload.expert_imbalance is not None:
        return np.where(layouts.ep > 1, workload.expert_imbalance, alone)
    popular = VIOLATION[experts.balance] / expected_largest(VIOLATION_EXPERTS)
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp / layouts.tp
    variance = popular**2 * layouts.ep / experts.count + (1 - 1 / layouts.ep) / (tokens * experts.active)
    distinct, back = np.unique(layouts.ep, return_inverse=True)
    largest = np.array([expected_largest(int(each)) for each in distinct])[back.reshape(-1)]
    return np.asarray(1.0 + largest * np.sqrt(variance))


def expected_largest(count: int) -> float:
    """Returns the expected largest of ``count`` standard normal numbers (Blom, 1958): within 0.02."""
    return 0.0 if count == 1 else NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def processors_left(run: RunSpec, layouts: Layouts) -> Numbers:
    """Returns the share [L] of a device's processors that sending to experts leaves to what runs beside it."""
    taken = min(0.9, run.stack.dispatch.processors / (run.cluster.device.sm_count or np.inf))
    sends = layouts.has("schedule", "dualpipe") & (layouts.ep > 1)
    return np.where(sends, 1.0 - taken, 1.0)
