import itertools

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.planner.forecast.communication.collectives import (
    OUT_EFFICIENCY,
    RING,
    SWITCH_SHARE,
    TREE,
    UP_EFFICIENCY,
    Fabric,
    Group,
    Protocol,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    placement,
    reduce_scatter_s,
    send_recv_s,
    two_tier_s,
)
from trainwright.spec.device import ClusterSpec, DeviceSpec, LinkSpec, NodeSpec

PLAIN = (Protocol(0.0, 1.0, 1.0, 1.0),)
"""Nothing but the wire: latency plus bytes over bandwidth."""
NO_TREE = (Protocol(1e9, 0.0, 0.0, 1.0),)
OPERATIONS = (all_reduce_s, all_gather_s, reduce_scatter_s, all_to_all_s, send_recv_s)


def fabric(*, port=25e9, ports=8, **changes):
    """Domains of eight devices with so many network ports."""
    settings = {
        "up_bytes_per_s": 100e9,
        "domain": 8,
        "up_latency_s": 1e-6,
        "out_bytes_per_s": port * ports / 8,
        "port_bytes_per_s": port,
        "out_latency_s": 5e-6,
        "ring": PLAIN,
        "tree": NO_TREE,
    }
    return Fabric(**settings | changes)


def nccl(up, port, ports=8, **changes):
    return fabric(
        port=port,
        ports=ports,
        **{"up_bytes_per_s": up, "up_latency_s": 3.4e-6, "out_latency_s": 9.6e-6, "ring": RING, "tree": TREE} | changes,
    )


def alone(ranks):
    return Group(ranks=ranks, domains=1)


def ring_by_messages(*, size_bytes, bandwidths, latencies, passes):
    """Every message of a ring collective: rank r sends to r + 1 when the link is free and the chunk has come."""
    ranks = len(bandwidths)
    free = [0.0] * ranks
    arrived = [0.0] * ranks
    for _ in range(passes * (ranks - 1)):
        sent = [max(free[rank], arrived[rank]) for rank in range(ranks)]
        free = [start + size_bytes / ranks / bandwidth for start, bandwidth in zip(sent, bandwidths, strict=True)]
        arrived = [free[rank - 1] + latencies[rank - 1] for rank in range(ranks)]
    return max(arrived)


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("size_bytes", [64, 1e6, 1e9])
def test_a_ring_takes_what_its_messages_take(ranks, size_bytes):
    for passes, operation in ((2, all_reduce_s), (1, all_gather_s), (1, reduce_scatter_s)):
        messages = ring_by_messages(
            size_bytes=size_bytes, bandwidths=[100e9] * ranks, latencies=[1e-6] * ranks, passes=passes
        )
        assert operation(fabric(), size_bytes, alone(ranks)) == pytest.approx(messages)


@pytest.mark.parametrize(("ranks", "domains"), [(16, 2), (32, 4), (8, 4)])
def test_a_ring_over_two_tiers_takes_what_its_messages_take(ranks, domains):
    local = ranks // domains
    group = Group(ranks=ranks, domains=domains)
    crosses = [(rank + 1) % local == 0 for rank in range(ranks)]
    latencies = [5e-6 if cross else 1e-6 for cross in crosses]
    tiers = [local * 25e9 if cross else 100e9 for cross in crosses]
    tiny = ring_by_messages(size_bytes=0, bandwidths=tiers, latencies=latencies, passes=1)
    assert all_gather_s(fabric(), 0, group) == pytest.approx(tiny)
    huge = ring_by_messages(size_bytes=1e12, bandwidths=tiers, latencies=latencies, passes=1)
    assert all_gather_s(fabric(), 1e12, group) == pytest.approx(huge, rel=0.02)
    middle = ring_by_messages(size_bytes=1e8, bandwidths=tiers, latencies=latencies, passes=1)
    assert middle <= all_gather_s(fabric(), 1e8, group) <= 1.3 * middle


def test_tiers_one_after_the_other_move_each_byte_over_each_tier_once():
    # 4 domains of 8: 7/8 inside, then 3/4 of each rank's eighth between on all rails at once; there and back.
    group = Group(ranks=32, domains=4)
    links = fabric(up_bytes_per_s=1000e9)
    latency = 2 * (7 * 1e-6 + 3 * 5e-6)
    assert all_reduce_s(links, 0, group) == pytest.approx(latency)
    wires = 2 * (7 / 8 * 1e8 / 1000e9 + 3 / 4 * 1e8 / 8 / 25e9)
    assert all_reduce_s(links, 1e8, group) == pytest.approx(latency + wires)


def test_pairwise_exchange_sends_every_pair_its_share():
    # 16 ranks in two domains: 7 peers beside, 8 beyond, each with a sixteenth.
    inside, between = 7 * 1e9 / 16 / 100e9, 8 * 1e9 / 16 / 25e9
    expected = max(inside, between) + 7 * 1e-6 + 8 * 5e-6
    assert all_to_all_s(fabric(), 1e9, Group(ranks=16, domains=2)) == pytest.approx(expected)


def test_a_send_across_domains_has_one_rail():
    near, far = alone(4), Group(ranks=4, domains=4)
    assert send_recv_s(fabric(), 1e9, near) == pytest.approx(1e-6 + 1e9 / 100e9)
    assert send_recv_s(fabric(), 1e9, far) == pytest.approx(5e-6 + 1e9 / 25e9)
    # Two cards for eight devices that all send at once: a quarter of one each.
    assert send_recv_s(fabric(ports=2), 1e9, far) == pytest.approx(5e-6 + 4 * 1e9 / 25e9)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_rank_sends_nothing_even_without_links(operation):
    bare = fabric(up_bytes_per_s=0.0, port=0.0)
    assert operation(bare, 1e9, alone(1)) == 0
    assert np.isinf(operation(bare, 1e9, alone(2)))
    assert operation(fabric(port=0.0), 1e9, alone(2)) < 1


@pytest.mark.parametrize("operation", OPERATIONS)
def test_more_bytes_slower_links_and_more_domains_never_take_less(operation):
    defaults = nccl(360e9, 47e9, switch_bytes_per_s=275e9)
    slower = nccl(180e9, 23e9, switch_bytes_per_s=137e9)
    sizes = np.geomspace(1e2, 1e11, 40)
    for ranks, domains in ((8, 1), (16, 2), (64, 8), (1024, 128), (16, 16)):
        group = Group(ranks=ranks, domains=domains)
        seconds = operation(defaults, sizes, group)
        assert (np.diff(seconds) >= 0).all()
        assert (operation(slower, sizes, group) >= seconds).all()
        wide = Group(ranks=2 * ranks, domains=2 * domains)
        assert domains == 1 or (operation(defaults, sizes, wide) >= 0.999 * seconds).all()


def test_arrays_give_what_single_layouts_give():
    ranks, domains, sizes = np.array([1.0, 8, 16, 64]), np.array([1.0, 1, 2, 64]), np.array([1e3, 1e6, 1e8, 1e9])
    links = nccl(360e9, 47e9)
    for operation in OPERATIONS:
        together = operation(links, sizes, Group(ranks=ranks, domains=domains))
        one_by_one = [
            float(operation(links, size, Group(ranks=n, domains=m)))
            for n, m, size in zip(ranks, domains, sizes, strict=True)
        ]
        assert together.tolist() == one_by_one


def counted_domains(shape, axis, domain):
    """Domains of the group of rank 0 along ``axis`` (0 outermost), by listing the mesh's ranks."""
    mesh = np.arange(np.prod(shape)).reshape(shape)
    along = np.moveaxis(mesh, axis, -1).reshape(-1, shape[axis])
    return {len(set(group // domain)) for group in along.tolist() for group in [np.array(group)]}


@pytest.mark.parametrize("domain", [1, 4, 8, 72])
def test_placement_counts_domains_as_the_mesh_lists_them(domain):
    for pp, dp, shard, cp, tp in itertools.product((1, 2), (1, 2), (1, 4, 8), (1, 2), (1, 2, 8)):
        shape = (pp, dp, shard, cp, tp)
        if np.prod(shape) % domain and domain == 72:
            continue
        placed = placement(domain=domain, tp=tp, cp=cp, dp_shard=shard, dp_replicate=dp, pp=pp)
        for axis, name in enumerate(("pp", "dp_replicate", "dp_shard", "cp", "tp")):
            assert counted_domains(shape, axis, domain) == {int(getattr(placed, name).domains)}, (shape, name)
        joined = (pp, dp, shard * cp, tp)
        assert counted_domains(joined, 2, domain) == {int(placed.shard.domains)}


def test_experts_sit_inside_the_ranks_of_data():
    placed = placement(domain=8, tp=2, dp_shard=16, ep=4)
    assert (placed.ep.ranks, placed.ep.domains) == (4, 1)
    assert (placed.experts.ranks, placed.experts.domains) == (4, 4)


H100 = Fabric(up_bytes_per_s=UP_EFFICIENCY * 450e9, domain=8, switch_bytes_per_s=SWITCH_SHARE * 450e9)
# Bus bandwidth in GB/s of all-reduces on 8 x H200, NCCL 2.27.7, torch 2.9.1, measured 2026-08-04:
# stas00/ml-engineering@c53741b, network/benchmarks/results/all-reduce-8xH200.md.
H200_BUS = {2**26: 346.5, 2**27: 401.9, 2**28: 436.2, 2**29: 450.3, 2**30: 463.6, 2**32: 473.1, 2**34: 482.3}


@pytest.mark.parametrize("size_bytes", H200_BUS)
def test_published_all_reduce_inside_a_node(size_bytes):
    bus = 2 * 7 / 8 * size_bytes / float(all_reduce_s(H100, size_bytes, alone(8))) / 1e9
    # At 64 MiB torch's own overhead still shows.
    assert bus == pytest.approx(H200_BUS[size_bytes], rel=0.08 if size_bytes >= 2**28 else 0.30)


def test_published_bus_bandwidths_between_nodes():
    # DGX A100, two nodes with 8 x 200 Gb/s, ring: 192 GB/s (NVIDIA/nccl#812); three nodes of 8 A100 with 4 x 200 Gb/s:
    # 96 GB/s (nccl-tests#119).
    for ports, nodes, measured in ((8, 2, 192.0), (4, 3, 96.0)):
        links, ranks = nccl(UP_EFFICIENCY * 300e9, OUT_EFFICIENCY * 25e9, ports), 8 * nodes
        seconds = 2 * all_gather_s(links, 8e9, Group(ranks=ranks, domains=nodes))
        assert 2 * (ranks - 1) / ranks * 8 / float(seconds) == pytest.approx(measured, rel=0.05)


def test_between_two_nodes_a_tree_beats_the_ring_and_in_large_groups_its_latency_does():
    # NVIDIA/nccl#812: on two nodes the tree's bus bandwidth exceeds the network's.
    links = nccl(240e9, 12e9)
    two = Group(ranks=16, domains=2)
    assert 2 * 15 / 16 * 4e9 / float(all_reduce_s(links, 4e9, two)) > 8 * 12e9
    large = Group(ranks=4096, domains=512)
    assert float(all_reduce_s(links, 1024, large)) < 0.1 * float(all_gather_s(links, 1024, large))


DEVICE = DeviceSpec(
    name="h",
    kind="cuda",
    vendor="",
    memory_bytes=1,
    bytes_per_s=1.0,
    flops_per_s={},
    compute_capability="9.0",
    link=LinkSpec(name="nvlink4", bytes_per_s=450e9),
)
NETWORK = LinkSpec(name="4 x ib-ndr", bytes_per_s=25e9, latency_s=9e-6)
BUS = LinkSpec(name="pcie5", bytes_per_s=63e9, latency_s=5.7e-6)


def test_links_of_a_cluster():
    # Eight devices share four ports of 50 GB/s.
    node = NodeSpec(device=DEVICE, devices=8, rails=4, bus=BUS, scale_up=DEVICE.link)
    links = Fabric.of(ClusterSpec(node=node, nodes=4, scale_out=NETWORK))
    assert (links.up_bytes_per_s, links.domain, links.up_latency_s) == pytest.approx((360e9, 8, 3.4e-6))
    assert (links.out_bytes_per_s, links.port_bytes_per_s) == pytest.approx((0.95 * 25e9, 0.95 * 50e9))
    assert links.out_latency_s == 9e-6
    assert links.switch_bytes_per_s == pytest.approx(0.61 * 450e9)
    halved = Fabric.of(ClusterSpec(node=node, nodes=4, scale_out=NETWORK), up=0.4)
    assert halved.switch_bytes_per_s == pytest.approx(0.305 * 450e9)


def test_a_rack_is_one_domain_over_its_nodes():
    node = NodeSpec(device=DEVICE, devices=4, scale_up=DEVICE.link, scale_up_devices=72)
    assert Fabric.of(ClusterSpec(node=node, nodes=9)).domain == 36
    assert Fabric.of(ClusterSpec(node=node, nodes=36, scale_out=NETWORK)).domain == 72


def test_bridged_pairs_are_faster_for_groups_that_fit_into_them():
    bridge = LinkSpec(name="nvlink4-bridge", bytes_per_s=300e9)
    node = NodeSpec(device=DEVICE, devices=8, scale_up=bridge, scale_up_devices=2, bus=BUS)
    links = Fabric.of(ClusterSpec(node=node))
    assert (links.domain, links.near, links.switch_bytes_per_s) == (8, 2, 0)
    pair, across, four = (placement(domain=8, tp=tp, dp_shard=8 / tp) for tp in (2, 1, 4))
    fast, slow = 0.8 * 300e9, 0.8 * 63e9
    assert all_gather_s(links, 8e10, pair.tp) == pytest.approx(8e10 / 2 / fast, rel=0.01)
    assert all_gather_s(links, 8e10, four.tp) == pytest.approx(8e10 * 3 / 4 / slow, rel=0.01)
    assert all_gather_s(links, 8e10, across.dp_shard) == pytest.approx(8e10 * 7 / 8 / slow, rel=0.01)
    assert send_recv_s(links, 8e10, pair.dp_shard) == pytest.approx(8e10 / slow, rel=0.01)


def test_a_cluster_without_a_known_link_is_refused():
    with pytest.raises(RecipeError, match="between nodes"):
        Fabric.of(ClusterSpec(node=NodeSpec(device=DEVICE, devices=8), nodes=2))
    bare = DeviceSpec(name="b", kind="cuda", vendor="", memory_bytes=1, bytes_per_s=1.0, flops_per_s={})
    with pytest.raises(RecipeError, match="devices of a node"):
        Fabric.of(ClusterSpec(node=NodeSpec(device=bare, devices=2)))
    assert Fabric.of(ClusterSpec(node=NodeSpec(device=bare, devices=1))).domain == 1


def test_both_tiers_at_once_take_the_longer_ones_time():
    fabric = Fabric.of(catalogue_cluster("8x8xh800-sxm"))
    group = placement(domain=8, ep=64, dp_shard=64).ep
    inside, between = 160e9 * 1e-3, 47.5e9 * 2e-3  # 1 ms of NVLink, 2 ms of InfiniBand
    start = 8.4e-6 + 3.4e-6 + 9.6e-6
    assert float(two_tier_s(fabric, inside, between, group)) == pytest.approx(2e-3 + start, rel=0.01)
    assert float(two_tier_s(fabric, 3 * inside, between, group)) == pytest.approx(3e-3 + start, rel=0.01)
    assert float(two_tier_s(fabric, inside, 0.0, placement(domain=8, ep=8, dp_shard=8).ep)) < 1e-3 + start
    assert float(two_tier_s(fabric, inside, between, placement(domain=8).ep)) == 0
