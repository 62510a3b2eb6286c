"""Where routed tokens go, against enumeration, drawn routings and DeepEP's measurements."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fixtures.drawn_routings import drawn
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.planner.forecast.communication.collectives import Fabric, all_to_all_s, placement
from trainwright.planner.forecast.communication.dispatch import (
    FP8_BYTES,
    copies,
    dispatch_s,
    expected_ranks,
    hit_share,
    token_bytes,
)
from trainwright.spec.parts.experts import Experts
from trainwright.spec.stack import Dispatch
from trainwright.spec.workload import Workload

DEEPSEEK, MIXTRAL = catalogue_model("deepseek-v3"), catalogue_model("mixtral-8x7b")
WORK = Workload(sequence_tokens=4096, batch_tokens=4096 * 512, steps=1, precision="fp8", optimizer="adamw")
TOKENS, WIDTH = 4096, 7168
DEEPEP = Dispatch(hierarchical=True, fp8=True)


def experts(count, active, groups=1, active_groups=1):
    return Experts(count=count, active=active, ffn_width=8, groups=groups, active_groups=active_groups)


def every_routing(e):
    """All choices of experts that the router's rules allow, each as often as it can come about."""
    size = e.count // e.groups
    for chosen in itertools.combinations(range(e.groups), e.active_groups):
        allowed = [group * size + each for group in chosen for each in range(size)]
        yield from itertools.combinations(allowed, e.active)


# -------------------------------------------------------------------------------------------------------------- routing
@pytest.mark.parametrize("shape", [(8, 2), (8, 3), (12, 4), (8, 3, 4, 2), (12, 3, 3, 2), (16, 4, 4, 2)])
def test_ranks_that_a_token_goes_to_are_those_of_all_routings(shape):
    e = experts(*shape)
    for ranks in (each for each in range(1, e.count + 1) if e.count % each == 0):
        size, group = e.count // ranks, e.count // e.groups
        if size % group and group % size:
            continue  # parts that lie across groups are rounded
        hit = [len({each // size for each in routing}) for routing in every_routing(e)]
        assert float(expected_ranks(e, ranks)) == pytest.approx(np.mean(hit)), ranks


@pytest.mark.parametrize(("ranks", "nodes"), [(64, 8), (32, 4), (16, 2)])
def test_deepseek_v3s_tokens_go_to_four_nodes_at_most(ranks, nodes):
    e = DEEPSEEK.experts
    assert (e.groups, e.active_groups) == (8, 4)
    routed = drawn(e, 20_000)
    for parts in (ranks, nodes):
        hit = [len(np.unique(row)) for row in routed // (256 // parts)]
        assert float(expected_ranks(e, parts)) == pytest.approx(np.mean(hit), rel=0.01)
    assert float(expected_ranks(e, 8)) < 4


def test_groups_picked_by_their_best_scores_are_near_to_random_ones():
    """The paper's router picks the groups whose two best experts score highest (section 2.1.2), not any four; then
    hardly any of the four goes without.
    """
    e = DEEPSEEK.experts
    scores = np.random.default_rng(1).random((5000, 8, 32))
    best = np.sort(scores, axis=2)[:, :, -2:].sum(axis=2).argsort(axis=1)[:, -4:]
    mask = np.zeros((5000, 8), dtype=bool)
    np.put_along_axis(mask, best, values=True, axis=1)
    routed = np.where(mask[:, :, None], scores, -1).reshape(5000, 256).argsort(axis=1)[:, -8:]
    for parts in (8, 64):
        hit = np.mean([len(np.unique(row)) for row in routed // (256 // parts)])
        assert float(expected_ranks(e, parts)) == pytest.approx(hit, rel=0.09)


def test_all_experts_are_always_hit():
    assert hit_share(experts(8, 2), 8) == pytest.approx(1)
    assert hit_share(experts(8, 1), 1) == pytest.approx(1 / 8)


# --------------------------------------------------------------------------------------------------------------- copies
@pytest.mark.parametrize("hierarchical", [False, True])
def test_copies_are_those_of_drawn_tokens(hierarchical):
    """Ranks of 4 domains send drawn tokens; counted on each tier, a token's own rank and domain left out."""
    e, n, k = experts(32, 4), 16, 4
    group = placement(domain=k, ep=n, dp_shard=n).ep
    routed = drawn(e, 20_000) // (e.count // n)
    inside = between = 0
    for token, ranks in enumerate(routed):
        home = token % n
        if hierarchical:
            # The rank with the sender's place in each node takes the token in, and passes it on to the others.
            landing = [domain * k + home % k for domain in range(n // k)]
            between += len({rank // k for rank in ranks} - {home // k})
            inside += len(set(ranks) - set(landing))
        else:
            between += sum(rank // k != home // k for rank in ranks)
            inside += sum(rank // k == home // k and rank != home for rank in ranks)
    copied = copies(e, group, hierarchical=hierarchical)
    assert [float(each) for each in copied] == pytest.approx([inside / len(routed), between / len(routed)], rel=0.02)


def test_plain_sending_is_an_all_to_all():
    fabric = Fabric.of(cluster("8x8xh100-sxm"))
    group = placement(domain=8, ep=64, dp_shard=64).ep
    plain = dispatch_s(fabric, DEEPSEEK.experts, Dispatch(), 1e6, group)
    assert plain == all_to_all_s(fabric, 8e6, group)
    assert dispatch_s(fabric, DEEPSEEK.experts, DEEPEP, 1e6, placement(domain=8).ep) == 0


# DeepEP's docs/legacy.md@0297fc8, "Normal kernels": H800 with a 400 Gb/s port each, 4,096 tokens, top-4 groups, top-8
# of 256 experts, fp8 to experts and bf16 back; bytes of all copies, those to the own rank or node too, over time.
@pytest.mark.parametrize(
    ("ep", "there", "back", "error"),
    [(8, 153e9, 158e9, 0.16), (16, 43e9, 43e9, 0.23), (32, 58e9, 57e9, 0.10), (64, 51e9, 50e9, 0.08)],
)
def test_two_tiers_take_as_long_as_deepep_measured(ep, there, back, error):
    nodes = ep // 8
    # On one node there are no groups; else each node is one, and four of them are picked.
    e = experts(256, 8, nodes, min(4, nodes)) if nodes > 1 else experts(256, 8)
    fabric, group = Fabric.of(cluster(f"{nodes}x8xh800-sxm")), placement(domain=8, ep=ep, dp_shard=ep).ep
    logical = float(expected_ranks(e, nodes if nodes > 1 else 8))
    for size, rate in ((FP8_BYTES, there), (2.0, back)):
        measured = logical * TOKENS * WIDTH * size / rate
        assert float(dispatch_s(fabric, e, DEEPEP, TOKENS * WIDTH * size, group)) == pytest.approx(measured, rel=error)


def test_eight_bits_there_and_sixteen_back():
    """arXiv 2412.19437, section 3.3.3; other precisions are sent as they are."""
    assert token_bytes(DEEPSEEK, WORK, DEEPEP) == (WIDTH * (1 + 4 / 128), WIDTH * 2)
    assert token_bytes(DEEPSEEK, WORK, Dispatch(hierarchical=True)) == (WIDTH * 2, WIDTH * 2)
    assert token_bytes(DEEPSEEK, replace(WORK, precision="bf16"), DEEPEP) == (WIDTH * 2, WIDTH * 2)
