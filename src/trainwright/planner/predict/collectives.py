"""Seconds of collectives over two tiers of links: devices in one scale-up domain, domains joined by rails.

A message of ``S`` bytes costs ``latency + S / bandwidth`` (Hockney, 1994). Collectives are the algorithms of Thakur,
Rabenseifner and Gropp (2005) as NCCL runs them: rings that use every rail at once, double binary trees, pairwise
exchange; the fastest algorithm and wire protocol is taken, as NCCL's tuner does. Bandwidths compare with the "bus
bandwidth" of nccl-tests (its doc/PERFORMANCE.md).

Bytes are those of the whole tensor: what an all-reduce reduces, an all-gather ends with, a reduce-scatter starts from;
for an all-to-all and a send, what one rank holds. Every rank runs the same program, so all groups of one axis
communicate at once and share a domain's rails equally. Bytes, ranks and bandwidths may be arrays of any common shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trainwright.core.errors import RecipeError
from trainwright.spec.device import ClusterSpec

Numbers = NDArray[np.float64]
Values = float | Numbers

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


class Protocol(NamedTuple):
    """One wire protocol: seconds to start, seconds of one hop in and between domains, share of the bandwidth."""

    start_s: float
    up_hop_s: float
    out_hop_s: float
    share: float


# NCCL's own constants (ncclTunerConstantsDefaults and ncclTopoTuneModel in src/graph/tuning.cc, 2026-06): the
# protocols LL, LL128 and Simple on NVLink and on the network.
RING = (Protocol(6.6e-6, 0.6e-6, 2.7e-6, 0.5), Protocol(14e-6, 1.9e-6, 4e-6, 0.92), Protocol(8.4e-6, 3.4e-6, 14e-6, 1))
TREE = (
    Protocol(6.8e-6, 0.6e-6, 5e-6, 0.92 / 3.8), Protocol(14e-6, 1.25e-6, 8.5e-6, 0.92 * 7 / 9),
    Protocol(8.4e-6, 4e-6, 14e-6, 0.92),
)  # fmt: skip
PARALLEL_AGGREGATED_TREES = Protocol(8e-6, 4e-6, 14e-6, 0.75)
"""NCCL's logarithmic all-gather and reduce-scatter (PAT), for groups with one rank in each domain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
    """Links as a collective sees them: bytes per second and direction that it reaches, not line rates.

    ``up_bytes_per_s`` is one device's inside its domain of ``domain`` devices; ``rail_bytes_per_s`` one rail's (network
    card's), of which each domain has ``rails``. A hop takes the protocol's handling or the wire's latency, whichever is
    longer. ``switch_bytes_per_s`` is the rate of an all-reduce inside the switch, 0 where the switch cannot.
    """

    up_bytes_per_s: Values
    domain: Values
    up_latency_s: Values = 0.0
    rail_bytes_per_s: Values = 0.0
    rails: Values = 0.0
    out_latency_s: Values = 0.0
    switch_bytes_per_s: Values = 0.0
    ring: tuple[Protocol, ...] = RING
    tree: tuple[Protocol, ...] = TREE

    @classmethod
    def of(
        cls, cluster: ClusterSpec, *, up: float = UP_EFFICIENCY, out: float = OUT_EFFICIENCY, rails: int | None = None
    ) -> Self:
        """The links of ``cluster``; ``up`` and ``out`` are shares of the line rates that collectives reach.

        A domain is what ``scale_up`` joins: a node, a rack of several, or a bridged pair inside a node, which then sees
        the node's bus as the way out. ``rails`` overrides one rail for each device.

        Raises:
            RecipeError: no link is known between devices that need one.
        """
        device, node = cluster.device, cluster.node
        inside = node.scale_up or device.link
        if inside is None and cluster.devices > 1:
            raise RecipeError("no link between the devices of a node is known", where=device.name)
        domain = node.scale_up_devices or node.devices
        outside = cluster.scale_out
        if domain < node.devices and cluster.nodes == 1:
            outside = node.bus
        if outside is None and cluster.devices > domain:
            raise RecipeError("no link between nodes is known", where=device.name)
        line = inside.bytes_per_s if inside else 0.0
        adds = device.kind == "cuda" and inside is not None and inside.name.lower().startswith(("nvl", "nvswitch"))
        adds = adds and float(device.compute_capability or 0) >= 9.0 and domain > 2
        return cls(
            up_bytes_per_s=up * line, domain=domain, up_latency_s=inside.latency_s if inside else 0.0,
            rail_bytes_per_s=out * outside.bytes_per_s if outside else 0.0,
            rails=domain if rails is None else rails, out_latency_s=outside.latency_s if outside else 0.0,
            switch_bytes_per_s=SWITCH_SHARE / UP_EFFICIENCY * up * line if adds else 0.0,
        )  # fmt: skip

    @property
    def out_bytes_per_s(self) -> Values:
        """One device's share of its domain's rails."""
        return self.rails * self.rail_bytes_per_s / self.domain


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Group:
    """The ranks of one collective: how many, and over how many domains they lie in equal shares."""

    ranks: Values
    domains: Values

    @property
    def local(self) -> Values:
        """Ranks in one domain; an average where shares are unequal."""
        return self.ranks / self.domains


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Placement:
    """Each mesh axis as a group.

    ``shard`` joins ``dp_shard`` and ``cp``: the ranks that share weights and add up gradients; ``experts`` are those of
    them that hold the same experts.
    """

    tp: Group
    cp: Group
    ep: Group
    dp_shard: Group
    shard: Group
    experts: Group
    dp_replicate: Group
    pp: Group


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
    """Where the ranks of each axis lie when ``tp`` is innermost, then ``cp``, ``dp_shard``, ``dp_replicate``, ``pp``.

    The usual order of Megatron-LM and torchtitan: what talks most sits closest. ``ep`` takes the innermost of the
    ranks that ``cp`` and ``dp_shard`` have.
    """
    data = cp * dp_shard
    return Placement(
        tp=_group(tp, stride=1, domain=domain),
        cp=_group(cp, stride=tp, domain=domain),
        ep=_group(ep, stride=tp, domain=domain),
        dp_shard=_group(dp_shard, stride=tp * cp, domain=domain),
        shard=_group(data, stride=tp, domain=domain),
        experts=_group(np.maximum(data / ep, 1.0), stride=tp * ep, domain=domain),
        dp_replicate=_group(dp_replicate, stride=tp * data, domain=domain),
        pp=_group(pp, stride=tp * data * dp_replicate, domain=domain),
    )


def _group(ranks: Values, *, stride: Values, domain: Values) -> Group:
    local = np.clip(np.floor(domain / stride), 1.0, ranks)
    return Group(ranks=ranks, domains=np.ceil(ranks / local))


def all_reduce_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Every rank ends with the sum: the fastest of ring, double binary tree, tiers one after the other, and switch."""
    m, k = group.domains, group.local
    up, out = fabric.up_bytes_per_s, k * fabric.out_bytes_per_s
    ring = _ring_s(fabric, size_bytes, group, passes=2.0)
    # A node of the two trees passes everything up once and down once; between two domains, each way has its own wire.
    inside = _over(np.where(k > 1, 2.0, 0.0) * size_bytes, up)
    between = _over(np.where(m > 2, 2.0, m - 1) * size_bytes, out)
    tree = _fastest(fabric, fabric.tree, np.maximum(inside, between), 2 * (k - 1), 2 * np.ceil(np.log2(m)))
    tiers = _over(2 * (k - 1) / k * size_bytes, up) + _over(2 * (m - 1) / m * size_bytes, out)
    tiered = _fastest(fabric, fabric.ring, tiers, 2 * (k - 1), 2 * (m - 1))
    switch = np.where(m > 1, 0.0, fabric.switch_bytes_per_s)
    switched = np.where(switch > 0, SWITCH_START_S + _over(size_bytes, switch), np.inf)
    return _unless_alone(group, np.minimum(np.minimum(ring, tree), np.minimum(tiered, switched)))


def all_gather_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Every rank ends with all ``size_bytes``, of which it had ``1 / ranks``.

    NCCL has a ring, whose latency grows with the ranks, and a logarithmic algorithm only where each domain holds one
    rank of the group.
    """
    n, m = group.ranks, group.domains
    ring = _ring_s(fabric, size_bytes, group, passes=1.0)
    seconds = _over((n - 1) / n * size_bytes, fabric.out_bytes_per_s)
    logarithmic = _fastest(fabric, (PARALLEL_AGGREGATED_TREES,), seconds, 0.0, np.ceil(np.log2(n)))
    return _unless_alone(group, np.where((m == n) & (n > 1), np.minimum(ring, logarithmic), ring))


def reduce_scatter_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Each rank ends with its ``1 / ranks`` of the sum: an all-gather run backwards."""
    return all_gather_s(fabric, size_bytes, group)


def all_to_all_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Each rank sends ``size_bytes / ranks`` to each other rank: pairwise exchange, both tiers' links at once."""
    n, k = group.ranks, group.local
    inside = _over((k - 1) / n * size_bytes, fabric.up_bytes_per_s)
    between = _over((n - k) / n * size_bytes, fabric.out_bytes_per_s)
    return _unless_alone(group, _fastest(fabric, fabric.ring, np.maximum(inside, between), k - 1, n - k))


def send_recv_s(fabric: Fabric, size_bytes: Values, group: Group) -> Numbers:
    """Each rank sends ``size_bytes`` to the next of its group and receives as much: the slowest pair.

    A rank that crosses domains has one rail at most, and its group's share of the rails.
    """
    rail = np.minimum(fabric.rail_bytes_per_s, group.local * fabric.out_bytes_per_s)
    crosses = np.where(group.domains > 1, 1.0, 0.0)
    seconds = np.where(crosses > 0, _over(size_bytes, rail), _over(size_bytes, fabric.up_bytes_per_s))
    return _unless_alone(group, _fastest(fabric, fabric.ring, seconds, 1 - crosses, crosses))


def _ring_s(fabric: Fabric, size_bytes: Values, group: Group, *, passes: float) -> Numbers:
    """A ring through all ranks, on as many channels as there are rails: the slower tier sets the pace."""
    n, m, k = group.ranks, group.domains, group.local
    hops = passes * (n - 1)
    inside = _over(np.where(k > 1, hops / n, 0.0) * size_bytes, fabric.up_bytes_per_s)
    between = _over(np.where(m > 1, hops / n, 0.0) * size_bytes, k * fabric.out_bytes_per_s)
    crossings = np.where(m > 1, np.minimum(passes * m, hops), 0.0)
    return _fastest(fabric, fabric.ring, np.maximum(inside, between), hops - crossings, crossings)


def _fastest(
    fabric: Fabric, protocols: tuple[Protocol, ...], seconds: Values, up_hops: Values, out_hops: Values
) -> Numbers:
    """The fastest protocol for bytes that take ``seconds`` at full bandwidth, after so many hops."""
    times = [
        protocol.start_s
        + up_hops * np.maximum(protocol.up_hop_s, fabric.up_latency_s)
        + out_hops * np.maximum(protocol.out_hop_s, fabric.out_latency_s)
        + seconds / protocol.share
        for protocol in protocols
    ]
    return np.asarray(np.minimum.reduce(np.broadcast_arrays(*times)), dtype=np.float64)


def _over(size_bytes: Values, bytes_per_s: Values) -> Numbers:
    """Seconds for so many bytes; infinite where there is no link for them."""
    size, rate = np.broadcast_arrays(np.asarray(size_bytes, dtype=np.float64), bytes_per_s)
    return np.where(rate > 0, size / np.where(rate > 0, rate, 1.0), np.where(size > 0, np.inf, 0.0))


def _unless_alone(group: Group, seconds: Values) -> Numbers:
    return np.where(np.asarray(group.ranks) > 1, seconds, 0.0)
