"""Seconds of collectives over two tiers of links: devices in one scale-up domain, domains joined by rails.

A message of ``S`` bytes costs ``latency + S / bandwidth`` (Hockney, 1994). Collectives are the algorithms of Thakur,
Rabenseifner and Gropp (2005) as NCCL runs them: rings that use every rail at once, double binary trees, pairwise
exchange; the fastest algorithm and wire protocol is taken, as NCCL's tuner does. Bandwidths compare with the "bus
bandwidth" of nccl-tests (its doc/PERFORMANCE.md).

Bytes are those of the whole tensor: what an all-reduce reduces, an all-gather ends with, a reduce-scatter starts from;
for an all-to-all and a send, what one rank holds. Every rank runs the same program, so all groups of one axis
communicate at once and share a domain's network ports equally. Bytes, ranks and bandwidths may be arrays of any common
shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, reduce
from typing import NamedTuple, Self

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.planner.counts.layouts import Numbers, Values
from trainwright.spec.device import ClusterSpec

UP_EFFICIENCY = 0.80
"""Bus bandwidth over line rate inside a domain. Ring all-reduce on 8 H100: 365 to 370 of 450 GB/s (NVIDIA/nccl#1455,
nccl-tests#212); on 8 A100: 232 of 300 GB/s (NVIDIA/nccl#1048)."""
OUT_EFFICIENCY = 0.95
"""The same between domains: 192 of 200 GB/s on two DGX A100 with 8 x 200 Gb/s (NVIDIA/nccl#812), 96 of 100 GB/s on
three nodes with 4 x 200 Gb/s (nccl-tests#119), 46 to 48 of 50 GB/s per 400 Gb/s rail (nccl-tests#290)."""
SWITCH_SHARE = 0.61
"""All-reduced bytes per second over line rate where the switch itself adds (NVLink SHARP, Hopper and later): 275 of
450 GB/s on 8 H100 and H200 (nccl-tests#212, nccl-tests#272)."""
SWITCH_START_S = 25e-6
"""Latency of that all-reduce: NVLS on NVLink in NCCL's tuning.cc."""


UP_LATENCY_S, OUT_LATENCY_S = 3.4e-6, 9.6e-6
"""One step of a ring, NCCL's Simple protocol, on NVLink and between nodes: hwLat in NCCL's tuning.cc (01afd20)."""


class Protocol(NamedTuple):
    """One wire protocol: seconds to start, a hop in and between domains over the link's, share of its bandwidth."""

    start_s: float
    up_hops: float
    out_hops: float
    share: float


# LL, LL128 and Simple: start-up and shares of bandwidth from ncclTunerConstantsDefaults and ncclTopoTuneModel in NCCL's
# src/graph/tuning.cc (5067397, 2026-06), hops as multiples of those of Simple in a ring.
RING = (Protocol(6.6e-6, 0.18, 0.28, 0.5), Protocol(14e-6, 0.56, 0.42, 0.92), Protocol(8.4e-6, 1, 1, 1))
TREE = (
    Protocol(6.8e-6, 0.18, 0.52, 0.92 / 3.8),
    Protocol(14e-6, 0.37, 0.89, 0.92 * 7 / 9),
    Protocol(8.4e-6, 1.18, 1.46, 0.92),
)
PARALLEL_AGGREGATED_TREES = Protocol(8e-6, 1.18, 1.46, 0.75)
"""NCCL's logarithmic all-gather and reduce-scatter (PAT), for groups with one rank in each domain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
    """Links as a collective sees them: bytes per second and direction that it reaches, not line rates.

    ``up_bytes_per_s`` is one device's inside its domain of ``domain`` devices, ``out_bytes_per_s`` one device's share
    of what leaves the domain, ``port_bytes_per_s`` the most that one device can send out. Inside a domain, ``near``
    neighbours may have a faster link of their own (bridged pairs). Latencies are of one step of a ring.
    ``switch_bytes_per_s`` is the rate of an all-reduce inside the switch, 0 where the switch cannot.
    """

    up_bytes_per_s: Values
    domain: Values
    up_latency_s: Values = UP_LATENCY_S
    out_bytes_per_s: Values = 0.0
    port_bytes_per_s: Values = np.inf
    out_latency_s: Values = OUT_LATENCY_S
    near: Values = 1.0
    near_bytes_per_s: Values = 0.0
    switch_bytes_per_s: Values = 0.0
    ring: tuple[Protocol, ...] = RING
    tree: tuple[Protocol, ...] = TREE

    @classmethod
    def of(cls, cluster: ClusterSpec, *, up: float = UP_EFFICIENCY, out: float = OUT_EFFICIENCY) -> Self:
        """Returns the links of ``cluster``; ``up`` and ``out`` are the shares of line rates that collectives reach.

        Raises:
            RecipeError: no link is known between devices that need one.
        """
        device, node = cluster.device, cluster.node
        near = node.scale_up or device.link
        all_near = near is not None and cluster.scale_up_devices >= min(node.devices, cluster.devices)
        bridged = node.bus is not None and not all_near
        inside = node.bus if bridged else near
        domain = node.devices if bridged else cluster.scale_up_devices
        network = cluster.scale_out
        if inside is None and domain > 1:
            raise RecipeError("no link between the devices of a node is known", where=device.name)
        if network is None and cluster.devices > domain:
            raise RecipeError("no link between nodes is known", where=device.name)
        adds = not bridged and inside is not None and inside.name.lower().startswith("nv")
        adds = adds and float(device.compute_capability or 0) >= 9.0 and domain > 2
        share = out * network.bytes_per_s if network else 0.0
        return cls(
            up_bytes_per_s=up * inside.bytes_per_s if inside else 0.0,
            domain=domain,
            up_latency_s=(inside.latency_s if inside else 0.0) or UP_LATENCY_S,
            out_bytes_per_s=share,
            port_bytes_per_s=share * node.devices / (node.rails or node.devices),
            out_latency_s=(network.latency_s if network else 0.0) or OUT_LATENCY_S,
            near=cluster.scale_up_devices if bridged and near else 1.0,
            near_bytes_per_s=up * near.bytes_per_s if bridged and near else 0.0,
            switch_bytes_per_s=SWITCH_SHARE / UP_EFFICIENCY * up * inside.bytes_per_s if adds and inside else 0.0,
        )

    @property
    def inside(self) -> Fabric:
        """Returns the links inside domains, as if nothing between them took time."""
        return replace(self, out_bytes_per_s=np.inf, port_bytes_per_s=np.inf, out_latency_s=0.0)

    @property
    def outside(self) -> Fabric:
        """Returns the links between domains, as if bytes inside them took no time."""
        return replace(self, up_bytes_per_s=np.inf, near_bytes_per_s=np.inf)

    def inside_bytes_per_s(self, group: Group) -> Values:
        """Returns the rate of one device of ``group`` inside its domain: the faster link where it joins all of it."""
        if np.all(np.asarray(self.near) <= 1.0):  # none has such a link; a rank alone, of span 1, sends nothing
            return self.up_bytes_per_s
        return np.where(np.asarray(group.span) <= self.near, self.near_bytes_per_s, self.up_bytes_per_s)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Group:
    """The ranks of one collective: how many, and over how many domains they lie in equal shares.

    ``span`` is how many neighbouring devices the group reaches over, its own ranks and those between them.
    """

    ranks: Values
    domains: Values
    span: Values = np.inf

    @property
    def local(self) -> Values:
        """Returns the number of ranks in one domain; an average where shares are unequal."""
        return self.ranks / self.domains


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """Each mesh axis as a group, made when it is asked for; ``domain`` and ``ranks`` of the axes say where it lies."""

    domain: Values
    ranks: Mapping[str, Values]

    @cached_property
    def tp(self) -> Group:
        """Returns the ranks that divide matrices."""
        return self._group(self.ranks["tp"], 1)

    @cached_property
    def cp(self) -> Group:
        """Returns the ranks that divide sequences."""
        return self._group(self.ranks["cp"], self.ranks["tp"])

    @cached_property
    def ep(self) -> Group:
        """Returns the ranks that have different experts."""
        return self._group(self.ranks["ep"], self.ranks["tp"])

    @cached_property
    def dp_shard(self) -> Group:
        """Returns the ranks that share weights and see different sequences."""
        return self._group(self.ranks["dp_shard"], self.ranks["tp"] * self.ranks["cp"])

    @cached_property
    def shard(self) -> Group:
        """Returns ``dp_shard`` and ``cp`` joined: the ranks that share weights and add up gradients."""
        return self._group(self._data, self.ranks["tp"])

    @cached_property
    def experts(self) -> Group:
        """Returns those of ``shard`` that hold the same experts."""
        ep = self.ranks["ep"]
        return self._group(np.maximum(self._data / ep, 1.0), self.ranks["tp"] * ep)

    @cached_property
    def dp_replicate(self) -> Group:
        """Returns the ranks that have whole copies of what ``shard`` shares."""
        return self._group(self.ranks["dp_replicate"], self.ranks["tp"] * self._data)

    @cached_property
    def pp(self) -> Group:
        """Returns the stages of a pipeline."""
        return self._group(self.ranks["pp"], self.ranks["tp"] * self._data * self.ranks["dp_replicate"])

    @property
    def _data(self) -> Values:
        return self.ranks["cp"] * self.ranks["dp_shard"]

    def _group(self, ranks: Values, stride: Values) -> Group:
        local = np.clip(np.floor(self.domain / stride), 1.0, ranks)
        return Group(ranks=ranks, domains=np.ceil(ranks / local), span=1 + (ranks - 1) * stride)


def placement(
    *,
    domain: Values,
    tp: Values = 1,
    cp: Values = 1,
    ep: Values = 1,
    dp_shard: Values = 1,
    dp_replicate: Values = 1,
    pp: Values = 1,
) -> Placement:
    """Returns the place of each axis's ranks: ``tp`` is innermost, then ``cp``, ``dp_shard``, ``dp_replicate``, ``pp``.

    The usual order of Megatron-LM and torchtitan: what talks most sits closest. ``ep`` takes the innermost of the
    ranks that ``cp`` and ``dp_shard`` have.
    """
    ranks = {"tp": tp, "cp": cp, "ep": ep, "dp_shard": dp_shard, "dp_replicate": dp_replicate, "pp": pp}
    return Placement(domain=domain, ranks=ranks)


def all_reduce_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Returns the seconds until all have the sum, by the fastest of ring, double binary tree, tiers and switch."""
    m, k = group.domains, group.local
    up, out = fabric.inside_bytes_per_s(group), k * fabric.out_bytes_per_s
    ring = _ring_s(fabric, size_bytes, group, passes=2.0)
    # A node of the two trees passes everything up once and down once; between two domains, each way has its own wire.
    inside = _over(np.where(k > 1, 2.0, 0.0) * size_bytes, up)
    between = _over(np.where(m > 2, 2.0, m - 1) * size_bytes, out)
    tree = _fastest(fabric, fabric.tree, np.maximum(inside, between), 2 * (k - 1), 2 * np.ceil(np.log2(m)))
    tiers = _over(2 * (k - 1) / k * size_bytes, up) + _over(2 * (m - 1) / m * size_bytes, out)
    tiered = _fastest(fabric, fabric.ring, tiers, 2 * (k - 1), 2 * (m - 1))
    fastest = np.minimum(np.minimum(ring, tree), tiered)
    if np.any(np.asarray(fabric.switch_bytes_per_s) > 0):
        switch = np.where(m > 1, 0.0, fabric.switch_bytes_per_s)
        fastest = np.minimum(fastest, np.where(switch > 0, SWITCH_START_S + _over(size_bytes, switch), np.inf))
    return _unless_alone(group, fastest)


def all_gather_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Returns the seconds until every rank has all ``size_bytes``, of which it had ``1 / ranks``.

    NCCL has a ring, whose latency grows with the ranks, and a logarithmic algorithm only where each domain holds one
    rank of the group.
    """
    n, m = group.ranks, group.domains
    ring = _ring_s(fabric, size_bytes, group, passes=1.0)
    seconds = _over((n - 1) / n * size_bytes, fabric.out_bytes_per_s)
    logarithmic = _fastest(fabric, (PARALLEL_AGGREGATED_TREES,), seconds, 0.0, np.ceil(np.log2(n)))
    return _unless_alone(group, np.where((m == n) & (n > 1), np.minimum(ring, logarithmic), ring))


def reduce_scatter_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Returns the seconds until each rank has its ``1 / ranks`` of the sum: an all-gather run backwards."""
    return all_gather_s(fabric, size_bytes, group)


def all_to_all_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Returns the seconds in which each rank sends ``size_bytes / ranks`` to each other, over both tiers at once."""
    n, k = group.ranks, group.local
    inside = _over((k - 1) / n * size_bytes, fabric.inside_bytes_per_s(group))
    between = _over((n - k) / n * size_bytes, fabric.out_bytes_per_s)
    return _unless_alone(group, _fastest(fabric, fabric.ring, np.maximum(inside, between), k - 1, n - k))


def two_tier_s(fabric: Fabric, inside_bytes: Values, between_bytes: Values, group: Group) -> Numbers:
    """Returns the seconds in which each rank sends so many bytes inside its domain, and so many out of it at once.

    One-sided writes to all others start together, so that a hop of each tier is waited for, not one to each rank.
    """
    inside = _over(inside_bytes, fabric.inside_bytes_per_s(group))
    between = _over(between_bytes, fabric.out_bytes_per_s)
    hops = np.where(np.asarray(group.domains) > 1, 1.0, 0.0)
    return _unless_alone(group, _fastest(fabric, fabric.ring[-1:], np.maximum(inside, between), 1.0, hops))


def send_recv_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Returns the seconds in which each rank sends ``size_bytes`` to the next and receives as much: the slowest pair.

    A rank that crosses domains has one port at most, and its group's share of all.
    """
    port = np.minimum(fabric.port_bytes_per_s, group.local * fabric.out_bytes_per_s)
    crosses = np.where(group.domains > 1, 1.0, 0.0)
    seconds = _over(size_bytes, np.where(crosses > 0, port, fabric.inside_bytes_per_s(group)))
    return _unless_alone(group, _fastest(fabric, fabric.ring, seconds, 1 - crosses, crosses))


def _ring_s(fabric: Fabric, size_bytes: Values, group: Group, *, passes: float) -> Numbers:
    """Returns the seconds of a ring through all ranks, on a channel for each port: the slower tier sets the pace."""
    n, m, k = group.ranks, group.domains, group.local
    hops = passes * (n - 1)
    inside = _over(np.where(k > 1, hops / n, 0.0) * size_bytes, fabric.inside_bytes_per_s(group))
    between = _over(np.where(m > 1, hops / n, 0.0) * size_bytes, k * fabric.out_bytes_per_s)
    crossings = np.where(m > 1, np.minimum(passes * m, hops), 0.0)
    return _fastest(fabric, fabric.ring, np.maximum(inside, between), hops - crossings, crossings)


def _fastest(
    fabric: Fabric, protocols: tuple[Protocol, ...], seconds: Values, up_hops: Values, out_hops: Values
) -> Numbers:
    """Returns the fastest protocol's seconds for bytes that take ``seconds`` at full bandwidth, after so many hops."""
    times = [
        protocol.start_s
        + up_hops * protocol.up_hops * fabric.up_latency_s
        + out_hops * protocol.out_hops * fabric.out_latency_s
        + seconds / protocol.share
        for protocol in protocols
    ]
    return np.asarray(reduce(np.minimum, times), dtype=np.float64)


def _over(size_bytes: Values, bytes_per_s: Values) -> Numbers:
    """Returns the seconds for so many bytes; infinite where there is no link for them."""
    if isinstance(bytes_per_s, float) and bytes_per_s > 0:
        return np.asarray(size_bytes / bytes_per_s, dtype=np.float64)
    size, rate = np.asarray(size_bytes, dtype=np.float64), np.asarray(bytes_per_s)
    if (rate > 0).all():
        return np.asarray(size / rate)
    return np.where(rate > 0, size / np.where(rate > 0, rate, 1.0), np.where(size > 0, np.inf, 0.0))


def _unless_alone(group: Group, seconds: Values) -> Numbers:
    return np.where(np.asarray(group.ranks) > 1, seconds, 0.0)
