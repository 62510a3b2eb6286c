"""Where routed tokens go: over how many ranks and nodes, how full the fullest rank gets, and how long sending takes.

Routing is taken as random under the router's own rules: a token picks any ``active_groups`` groups of experts, and any
``active`` experts in those; groups picked by their best scores are hit up to 9 % more often. ``Dispatch`` says how
software sends what was routed. Arrays are [L] over layouts.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from trainwright.planner.counts.between import NARROW
from trainwright.planner.counts.layouts import Numbers, Values
from trainwright.planner.forecast.communication.collectives import Fabric, Group, all_to_all_s, two_tier_s
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts
from trainwright.spec.stack import Dispatch
from trainwright.spec.workload import Workload

FP8_BYTES = 1.0 + 4.0 / 128
"""Of an element: each 128 of a token share an fp32 scale (arXiv 2412.19437, section 3.3.2, 1 x 128 tiles)."""


@lru_cache(maxsize=4096)
def hit_share(experts: Experts, size: float) -> float:
    """Returns the probability that at least one of a token's experts is among ``size`` neighbouring ones.

    Without groups ``1 - C(E - size, k) / C(E, k)``. With groups the ``size`` lie in one, or fill several; how many of
    these the token picks is hypergeometric.
    """
    group = experts.count / experts.groups
    filled, each, inside = max(1, round(size / group)), min(size, group), experts.active_groups * group
    return sum(
        _hypergeometric(experts.groups, filled, experts.active_groups, picked)
        * (1.0 - _missed(inside, picked * each, experts.active))
        for picked in range(min(filled, experts.active_groups) + 1)
    )


def _missed(count: float, size: float, drawn: int) -> float:
    """Returns the probability that none of ``drawn`` of ``count``, without replacement, is one of ``size``."""
    share = 1.0
    for each in range(drawn):
        share *= max(0.0, count - size - each) / (count - each)
    return share


def _hypergeometric(count: int, marked: int, drawn: int, hits: int) -> float:
    """Returns the probability that ``hits`` of ``drawn`` of ``count`` are among ``marked``."""
    share = 1.0
    for each in range(hits):
        share *= max(0, marked - each) * (drawn - each) / (each + 1) / (count - each)
    for each in range(drawn - hits):
        share *= max(0, count - marked - each) / (count - hits - each)
    return share


def _hits(experts: Experts, parts: Values) -> Numbers:
    """Returns ``hit_share`` of each of ``parts`` equal parts of all experts."""
    places = np.asarray(parts, dtype=np.float64)
    distinct, back = np.unique(places, return_inverse=True)
    shares = np.array([hit_share(experts, experts.count / each) for each in distinct])
    return np.asarray(shares[back].reshape(places.shape))


def expected_ranks(experts: Experts, parts: Values) -> Numbers:
    """Returns the expected number of ranks (or nodes) of ``parts`` that a token goes to."""
    return np.asarray(parts * _hits(experts, parts))


def copies(experts: Experts, group: Group, *, hierarchical: bool) -> tuple[Numbers, Numbers]:
    """Returns the copies of a rank's token that go over its links inside the domain, and out of it.

    Plain: one copy for each expert, wherever it is. Hierarchical: one for each other domain, which is passed on there
    to each rank that the token goes to; what a rank passes on for others equals what others pass on for it.
    """
    n, m, k = group.ranks, group.domains, group.local
    if hierarchical:
        return np.asarray(m * (k - 1) * _hits(experts, n)), np.asarray((m - 1) * _hits(experts, m))
    return np.asarray(experts.active * (k - 1) / n), np.asarray(experts.active * (n - k) / n)


def dispatch_s(fabric: Fabric, experts: Experts, dispatch: Dispatch, sent: Values, group: Group) -> Numbers:
    """Returns the seconds in which every rank of ``group`` sends its tokens, ``sent`` bytes of them, to their experts.

    Sending them back takes as long: results of one rank's experts are added up on it, and those of one domain before
    they leave it (arXiv 2412.19437, section 3.2.2).
    """
    if not dispatch.hierarchical:
        return all_to_all_s(fabric, experts.active * sent, group)
    inside, between = copies(experts, group, hierarchical=True)
    return two_tier_s(fabric, inside * sent, between * sent, group)


def token_bytes(model: ModelSpec, workload: Workload, dispatch: Dispatch) -> tuple[float, float]:
    """Returns the bytes of one token on its way to the experts, and back."""
    size = workload.element_bytes
    narrow = dispatch.fp8 and workload.precision in NARROW
    return model.width * (FP8_BYTES if narrow else size), model.width * size
