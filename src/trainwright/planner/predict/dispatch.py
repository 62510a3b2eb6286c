"""Where routed tokens go: over how many ranks and nodes, how full the fullest rank gets, and how long sending takes.

Routing is taken as random under the router's own rules: a token picks any ``active_groups`` groups of experts, and any
``active`` experts in those; groups picked by their best scores are hit up to 9 % more often. ``Dispatch`` says how
software sends what was routed. Arrays are [L] over layouts.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np

from trainwright.planner.predict.collectives import Fabric, Group, Values, all_to_all_s, two_tier_s
from trainwright.planner.predict.layouts import Layouts, Numbers
from trainwright.spec.model import Balance, Experts, ModelSpec
from trainwright.spec.stack import Dispatch
from trainwright.spec.workload import Workload

NARROW = ("fp8", "nvfp4")
FP8_BYTES = 1.0 + 4.0 / 128
"""Of an element: each 128 of a token share an fp32 scale (arXiv 2412.19437, section 3.3.2, 1 x 128 tiles)."""
VIOLATION: dict[Balance, float] = {"loss": 0.62, "bias": 0.04}
"""The fullest expert's load over the mean, less one (Wang et al., 2024, arXiv 2408.15664, table 2, the mean of its two
models of 1 and 3 B parameters; recall)."""
VIOLATION_EXPERTS = 64
"""Experts of those models."""


@lru_cache(maxsize=4096)
def hit_share(experts: Experts, size: float) -> float:
    """The probability that at least one of a token's experts is among ``size`` neighbouring ones.

    Without groups ``1 - C(E - size, k) / C(E, k)``. With groups the ``size`` lie in one, or fill several; how many of
    these the token picks is hypergeometric.
    """
    group = experts.count / experts.groups
    filled = max(1, round(size / group))
    each = min(size, group)
    inside = experts.active_groups * group
    return sum(
        _hypergeometric(experts.groups, filled, experts.active_groups, picked)
        * (1.0 - _missed(inside, picked * each, experts.active))
        for picked in range(min(filled, experts.active_groups) + 1)
    )


def _missed(count: float, size: float, drawn: int) -> float:
    """That none of ``drawn`` of ``count``, without replacement, is one of ``size``."""
    share = 1.0
    for each in range(drawn):
        share *= max(0.0, count - size - each) / (count - each)
    return share


def _hypergeometric(count: int, marked: int, drawn: int, found: int) -> float:
    """That ``found`` of ``drawn`` of ``count`` are among ``marked``."""
    share = 1.0
    for each in range(found):
        share *= max(0, marked - each) * (drawn - each) / (each + 1) / (count - each)
    for each in range(drawn - found):
        share *= max(0, count - marked - each) / (count - found - each)
    return share


def _hits(experts: Experts, parts: Values) -> Numbers:
    """``hit_share`` of each of ``parts`` equal parts of all experts."""
    places = np.asarray(parts, dtype=np.float64)
    distinct, back = np.unique(places, return_inverse=True)
    found = np.array([hit_share(experts, experts.count / each) for each in distinct])
    return np.asarray(found[back].reshape(places.shape))


def expected_ranks(experts: Experts, parts: Values) -> Numbers:
    """Of ``parts`` ranks (or nodes) that divide the experts, how many a token goes to."""
    return np.asarray(parts * _hits(experts, parts))


def copies(experts: Experts, group: Group, *, hierarchical: bool) -> tuple[Numbers, Numbers]:
    """Copies of each token of a rank that go over its links inside the domain, and out of it; its own stays.

    Plain: one copy for each expert, wherever it is. Hierarchical: one for each other domain, which is passed on there
    to each rank that the token goes to; what a rank passes on for others equals what others pass on for it.
    """
    n, m, k = group.ranks, group.domains, group.local
    if hierarchical:
        return np.asarray(m * (k - 1) * _hits(experts, n)), np.asarray((m - 1) * _hits(experts, m))
    return np.asarray(experts.active * (k - 1) / n), np.asarray(experts.active * (n - k) / n)


def dispatch_s(fabric: Fabric, experts: Experts, dispatch: Dispatch, sent: Values, group: Group) -> Numbers:
    """Seconds in which every rank of ``group`` sends its tokens, ``sent`` bytes of them, to their experts.

    Sending them back takes as long: results of one rank's experts are added up on it, and those of one domain before
    they leave it (arXiv 2412.19437, section 3.2.2).
    """
    if not dispatch.hierarchical:
        return all_to_all_s(fabric, experts.active * sent, group)
    inside, between = copies(experts, group, hierarchical=True)
    return two_tier_s(fabric, inside * sent, between * sent, group)


def token_bytes(model: ModelSpec, workload: Workload, dispatch: Dispatch) -> tuple[float, float]:
    """Bytes of one token on its way to the experts, and back."""
    size = 4.0 if workload.precision in ("fp32", "tf32") else 2.0
    narrow = dispatch.fp8 and workload.precision in NARROW
    return model.width * (FP8_BYTES if narrow else size), model.width * size


def fullest(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """The fullest expert-parallel rank's load over the mean: what all others wait for.

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
    """The expected largest of ``count`` standard normal numbers, by Blom's approximation (1958): within 0.02."""
    return 0.0 if count == 1 else NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
