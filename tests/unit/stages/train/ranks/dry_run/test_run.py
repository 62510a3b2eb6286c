"""A step on a fake process group, held to counts by hand from the parameters' shapes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from packaging.version import Version

from trainwright.core.errors import RecipeError
from trainwright.planner.counts.parallel.dry_run import DryRank, DryRun
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts
from trainwright.stages.plan.build import build_plan
from trainwright.stages.train.ranks.dry_run.run import dry_run
from trainwright.testing.machine import fake_machine

OF_THIS_TRACKER = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.13"), reason="the tracker of torch 2.11 counts up to 45 % more"
)
LAYERS, WIDTH, INNER, VOCABULARY = 2, 64, 96, 320
"""Layers where each stage of a pipeline has one."""
BLOCK = {
    "attention_norm.weight": (WIDTH,),
    "attention.query.weight": (WIDTH, WIDTH),
    "attention.key.weight": (WIDTH, WIDTH),
    "attention.value.weight": (WIDTH, WIDTH),
    "attention.out.weight": (WIDTH, WIDTH),
    "ffn_norm.weight": (WIDTH,),
    "ffn.gate.weight": (INNER, WIDTH),
    "ffn.up.weight": (INNER, WIDTH),
    "ffn.down.weight": (WIDTH, INNER),
}
ROOT = {"embedding": (VOCABULARY, WIDTH), "norm.weight": (WIDTH,), "head.weight": (VOCABULARY, WIDTH)}
EACH = sum(map(math.prod, BLOCK.values()))
APART = sum(map(math.prod, ROOT.values()))
ALL = LAYERS * EACH + APART


def counted(layout: dict[str, int], **keys: Any) -> DryRun:
    return dry_run(*planned(layout, **keys))


def planned(
    layout: dict[str, int],
    *,
    sequences: int = 16,
    micro_batch: int = 1,
    shape: dict[str, int] | None = None,
    vocabulary: int = VOCABULARY,
    **train: object,
) -> tuple[Recipe, Plan]:
    layers = max(LAYERS, layout.get("pp", 1))
    model = {"layers": layers, "width": WIDTH, "heads": 4, "ffn_width": INNER, "context_tokens": 32, "tied": False}
    model |= shape or {}
    section = {
        "sequence_tokens": 32,
        "batch_tokens": 32 * sequences,
        "duration": "3 steps",
        "precision": "bf16",
        "exec": {"micro_batch": micro_batch, "layout": layout, "device": "cpu", "compile": False},
    } | train
    recipe = Recipe.model_validate(
        {"name": "dry", "model": model, "data": {"sources": [{"kind": "python-stdlib"}]}, "train": section}
    )
    facts = DatasetFacts(vocabulary=vocabulary, train_tokens=90_000, train_documents=9, counted=True)
    return recipe, build_plan(recipe, fake_machine(), facts)


def messages(rank: DryRank) -> dict[tuple[str, str], tuple[int, float]]:
    return {(each.kind, each.axis): (each.count, each.size_bytes) for each in rank.sent}


def test_eight_ranks_share_every_parameter_and_gather_it_in_pieces() -> None:
    run = counted({"dp_shard": 8}, sequences=1024, micro_batch=64)
    (rank,) = run.ranks
    assert (run.passes, run.micro_batches, rank.rank, rank.alike) == (2, 2, 0, 8)
    whole = {f"blocks.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in BLOCK.items()} | ROOT
    assert {name: share.whole for name, share in rank.shares.items()} == whole
    assert all(share.local == (share.whole[0] // 8, *share.whole[1:]) for share in rank.shares.values())
    # Every dim is a multiple of 8, so that nothing is padded. The root is fp32, what blocks compute with is bf16.
    assert messages(rank) == {
        ("all-gather", "dp_shard"): (2 * (2 * LAYERS + 1), 2 * (2 * LAYERS * EACH * 2 + APART * 4)),
        ("reduce-scatter", "dp_shard"): (2 * (LAYERS + 1), 2 * ALL * 4),
        ("all-reduce", "dp_shard"): (3, 8 + 4 + 8),
    }
    assert sorted(rank.planned_sent, key=lambda each: each.kind) == sorted(rank.sent, key=lambda each: each.kind)
    assert rank.memory["weights"] == rank.memory["gradients"] == 4 * ALL / 8
    assert rank.memory["optimizer"] == 8 * ALL / 8 + 4 * len(whole)  # and a count of steps for each
    # At the loss of the second pass the root alone is gathered, and the first pass's buffers are gone.
    assert rank.memory["communication"] == 4 * APART
    assert not dist.is_initialized()


ALONG_ONE_AXIS = (
    {"dp_shard": 4, "zero_stage": 1},
    {"dp_replicate": 4},
    {"tp": 4},
    {"tp": 4, "sequence_parallel": False},
)
ALONG_SEVERAL = (
    ({"dp_replicate": 2, "dp_shard": 4, "zero_stage": 2}, "selective"),
    ({"tp": 2, "dp_shard": 2}, "full"),
    ({"tp": 2, "dp_replicate": 2, "dp_shard": 2, "zero_stage": 1, "sequence_parallel": False}, "none"),
    ({"tp": 2, "cp": 2}, "selective"),
    ({"tp": 2, "cp": 2, "context": "ulysses", "zero_stage": 0}, "none"),
    ({"tp": 2, "cp": 2, "dp_shard": 2, "sequence_parallel": False}, "full"),
)
RECOMPUTED = ("none", "selective", "full")


MESSAGES = [(layout, recompute) for layout in ALONG_ONE_AXIS for recompute in RECOMPUTED] + [
    pytest.param(layout, recompute, marks=() if recompute == often else pytest.mark.soak)
    for layout, often in ALONG_SEVERAL
    for recompute in RECOMPUTED
]
"""One axis with each way to recompute, several with one, and the rest for ``make soak``."""


@pytest.mark.parametrize(("layout", "recompute"), MESSAGES, ids=str)
def test_messages_are_those_of_the_plan(layout: dict[str, int], recompute: str) -> None:
    (rank,) = counted(layout, sequences=32, recompute=recompute).ranks
    planned = {(each.kind, each.axis): (each.count, each.size_bytes) for each in rank.planned_sent}
    assert messages(rank) == planned


@pytest.mark.parametrize(
    ("layout", "heads"),
    [
        ({"dp_shard": 4}, {}),
        ({"dp_replicate": 2, "dp_shard": 2, "zero_stage": 1}, {}),
        ({"dp_replicate": 4}, {}),
        ({"tp": 4}, {"kv_heads": 2}),
        ({"tp": 2, "dp_shard": 2}, {"kv_heads": 1}),
        ({"cp": 2, "dp_shard": 2}, {}),
        ({"pp": 3, "dp_shard": 2}, {}),
    ],
    ids=str,
)
def test_muon_gathers_whole_matrices_as_planned(layout: dict[str, int], heads: dict[str, int]) -> None:
    plain, run = (counted(layout, shape=heads, optimizer={"name": name}) for name in ("adamw", "muon"))
    shared = {"dp_shard", "cp", "tp"} & layout.keys()
    assert len(run.ranks) == layout.get("pp", 1)
    for before, rank in zip(plain.ranks, run.ranks, strict=True):
        assert by_kind(rank) == sorted((each.kind, each.axis, each.count, each.size_bytes) for each in rank.sent)
        assert (messages(rank) != messages(before)) == bool(shared)


@pytest.mark.parametrize(
    ("layout", "reduced"),
    [
        ({"dp_shard": 4, "zero_stage": 1}, ("reduce-scatter", "dp_shard", LAYERS + 1, 2 * ALL)),
        ({"dp_shard": 4}, ("reduce-scatter", "dp_shard", 2 * (LAYERS + 1), 2 * 2 * ALL)),
        ({"dp_replicate": 4}, ("all-reduce", "dp_replicate", LAYERS + 1 + 3, 2 * ALL + 20)),
    ],
)
def test_gradients_that_are_reduced_in_sixteen_bits_are_half_the_bytes(layout, reduced) -> None:
    keys = {"micro_batch": 1, "layout": layout, "device": "cpu", "compile": False, "reduce": "bf16"}
    (rank,) = counted(layout, sequences=32, exec=keys).ranks
    assert by_kind(rank) == sorted((each.kind, each.axis, each.count, each.size_bytes) for each in rank.sent)
    assert reduced in by_kind(rank)


@OF_THIS_TRACKER
def test_whole_gradients_are_kept_in_what_they_are_reduced_in() -> None:
    found, planned_bytes = {}, {}
    for reduce in ("fp32", "bf16"):
        keys = {"micro_batch": 1, "layout": {"dp_shard": 8, "zero_stage": 1}, "device": "cpu", "compile": False}
        (rank,) = counted(keys["layout"], sequences=32, exec=keys | {"reduce": reduce}).ranks
        found[reduce], planned_bytes[reduce] = rank.memory, rank.planned_memory
    assert found["bf16"]["gradients"] <= found["fp32"]["gradients"] / 2 * 1.05
    assert planned_bytes["bf16"]["gradients"] == planned_bytes["fp32"]["gradients"] / 2 == 2 * ALL
    assert planned_bytes["bf16"] | {"gradients": 0} == planned_bytes["fp32"] | {"gradients": 0}


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_a_rank_of_shared_matrices_keeps_what_is_planned(sequence_parallel: bool) -> None:
    layout = {"tp": 4, "dp_shard": 2, "sequence_parallel": sequence_parallel}
    (rank,) = counted(layout, sequences=4096, micro_batch=512).ranks
    assert rank.shares["blocks.0.attention.query.weight"].local == (WIDTH // 4 // 2, WIDTH)
    assert rank.shares["blocks.0.attention.out.weight"].local == (WIDTH // 2, WIDTH // 4)
    assert rank.shares["embedding"].local == (VOCABULARY // 4 // 2, WIDTH)
    assert rank.shares["norm.weight"].local == (WIDTH // 2,)
    ratios = rank.ratios()
    assert ratios["weights"] == pytest.approx(1, abs=0.01)
    assert ratios["activations"] == pytest.approx(1, abs=0.05)


@OF_THIS_TRACKER
@pytest.mark.parametrize(
    ("recompute", "micro_batch", "layout"),
    [(recompute, size, {"dp_shard": 8}) for recompute in ("none", "selective", "full") for size in (1, 4)]
    + [("full", 4, {"tp": 2, "dp_shard": 4}), ("full", 4, {"dp_replicate": 4})]
    + [("none", 1, {"dp_shard": 8, "zero_stage": stage}) for stage in (1, 2)]
    + [("none", 4, {"dp_replicate": 2, "dp_shard": 2, "zero_stage": 1}), ("full", 4, {"cp": 2, "zero_stage": 1})],
)
def test_memory_is_that_of_torchs_tracker(recompute: str, micro_batch: int, layout: dict[str, int]) -> None:
    # Proportions of a model of 8B: tables of two blocks' size each, a sequence as wide as the feed-forward.
    shape = {"layers": 4, "width": 256, "heads": 4, "ffn_width": 896, "context_tokens": 1024}
    batch = {"sequence_tokens": 1024, "batch_tokens": 1024 * 16 * micro_batch}
    run = counted(layout, micro_batch=micro_batch, shape=shape, vocabulary=8192, recompute=recompute, **batch)
    (rank,) = run.ranks
    total = sum(rank.memory.values())
    assert sum(rank.planned_memory.values()) == pytest.approx(total, rel=0.05)
    for name, size_bytes in rank.memory.items():
        assert rank.planned_memory[name] == pytest.approx(size_bytes, rel=0.05, abs=0.05 * total), name


@pytest.mark.parametrize("layout", [{"dp_shard": 4}, {"tp": 2}, {"dp_replicate": 2}], ids=str)
def test_an_average_takes_what_is_planned_and_sends_nothing(layout: dict[str, int]) -> None:
    (plain,), (rank,) = (counted(layout, sequences=16, **more).ranks for more in ({}, {"ema": {"decay": 0.9}}))
    share = rank.memory["weights"]
    assert rank.memory["optimizer"] - plain.memory["optimizer"] == share + 8 * len(rank.shares)  # a count for each
    planned = rank.planned_memory["optimizer"] - plain.planned_memory["optimizer"]
    assert planned == pytest.approx(share, rel=0.01)
    assert messages(rank) == messages(plain)


def test_one_process_sends_nothing() -> None:
    (rank,) = counted({"dp_shard": 1}, sequences=2).ranks
    assert rank.sent == rank.planned_sent == ()
    assert rank.memory["weights"] == 4 * ALL


def test_a_layout_that_is_not_executed_is_refused() -> None:
    with pytest.raises(RecipeError, match="cannot execute this plan .*set recompute=none or schedule=1f1b"):
        counted({"pp": 2, "schedule": "zero_bubble"}, recompute="full")


def test_an_optimizer_that_reads_values_is_named() -> None:
    with pytest.raises(RecipeError, match="has none in a dry run"):
        counted({"dp_shard": 2}, optimizer={"name": "adamw", "moments": "bf16"})
    assert not dist.is_initialized()


def by_kind(rank: DryRank) -> list[tuple[str, str, int, float]]:
    return sorted((each.kind, each.axis, each.count, each.size_bytes) for each in rank.planned_sent)


@pytest.mark.parametrize(
    ("layout", "recompute", "context"),
    [
        # Keys and values of 32 tokens in bf16: gathered forth, again in recomputation, and reduced back.
        ({"cp": 2}, "none", {("all-gather", "cp"): (1, 2.0), ("reduce-scatter", "cp"): (1, 2.0)}),
        ({"cp": 2, "dp_shard": 2}, "full", {("all-gather", "cp"): (2, 4.0), ("reduce-scatter", "cp"): (1, 2.0)}),
        # Half of the tokens: queries, keys and values there, mixed values back; as much for their gradients.
        ({"cp": 2, "context": "ulysses", "dp_replicate": 2}, "none", {("all-to-all", "cp"): (4, 4.0)}),
    ],
    ids=str,
)
def test_ranks_of_a_sequence_exchange_what_is_planned(layout, recompute, context) -> None:
    (rank,) = counted(layout, recompute=recompute).ranks
    sent = messages(rank)
    assert sorted((*key, *sent[key]) for key in sent) == by_kind(rank)
    for (kind, axis), (count, tensors) in context.items():
        several = layout.get("dp_shard", 1) > 1 or kind == "all-to-all"
        if several:  # otherwise weights are shared along the same axis, and counted with them
            assert sent[kind, axis] == (2 * LAYERS * count, 2 * LAYERS * tensors * 2 * 32 * WIDTH)
        else:
            assert sent[kind, axis][0] > 2 * LAYERS * count


@OF_THIS_TRACKER
def test_what_a_plan_counts_of_divided_sequences_is_what_is_kept() -> None:
    ways = ({"cp": 4}, {"cp": 4, "context": "ulysses"})
    shared = tuple({"tp": 2, "cp": 2, "context": way, "dp_shard": 2} for way in ("gather", "ulysses"))
    for layout in (*ways, *shared):
        (rank,) = counted(layout, sequences=64, micro_batch=16).ranks
        assert 0.8 <= rank.ratios()["activations"] <= 1.25, layout


def test_what_waits_in_host_memory_is_not_counted() -> None:
    recipe, plan = planned({"dp_shard": 2})
    moved = replace(plan, workload=replace(plan.workload, activation_offload=True))
    with pytest.raises(RecipeError, match=r"train\.activation_offload: a dry run moves nothing to host memory"):
        dry_run(recipe, moved)
    updated = replace(plan, parallel=replace(plan.parallel, offload="optimizer"))
    with pytest.raises(RecipeError, match=r"train\.exec\.layout\.offload: a dry run moves nothing to host memory"):
        dry_run(recipe, updated)


def test_kernels_that_no_processor_has_are_counted_as_the_fused_one() -> None:
    recipe, plan = planned({"tp": 2}, document_masking=True)
    exec_ = recipe.train.exec.model_copy(update={"attention": "flex"})
    asked = recipe.model_copy(update={"train": recipe.train.model_copy(update={"exec": exec_})})
    node = plan.cluster.node
    rented = replace(plan.cluster, node=replace(node, device=replace(node.device, kind="cuda")))
    run = dry_run(asked, replace(plan, cluster=rented))
    assert any(note.startswith("attention by flex is counted as by sdpa") for note in run.notes)
    exec_ = recipe.train.exec.model_copy(update={"attention": "sdpa"})
    plain = recipe.model_copy(update={"train": recipe.train.model_copy(update={"exec": exec_})})
    other = dry_run(plain, replace(plan, cluster=rented))
    assert run.ranks[0].memory == other.ranks[0].memory


def test_groups_of_parameters_are_a_table_and_frozen_ones_have_no_state() -> None:
    groups = [{"match": "blocks.0.*", "frozen": True}, {"match": "*norm*", "lr": "x0.1"}]
    plain = counted({"dp_shard": 2}).ranks[0].memory
    run = counted({"dp_shard": 2}, optimizer={"name": "adamw", "groups": groups})
    frozen, *others = run.groups
    assert (frozen.match, frozen.lr, frozen.parameters) == ("blocks.0.*", None, EACH)
    assert [(row.match, row.rule) for row in others] == [("*norm*", "AdamW"), ("", "AdamW")]
    assert sum(row.parameters for row in run.groups) == ALL
    memory = run.ranks[0].memory
    assert plain["optimizer"] - memory["optimizer"] == 8 * EACH / 2 + 4 * len(BLOCK)
    assert plain["gradients"] - memory["gradients"] == 4 * EACH / 2


def test_a_pattern_that_matches_nothing_is_refused_by_a_dry_run() -> None:
    with pytest.raises(RecipeError, match=r"no parameter is left for this group .*nearest are blocks\.1"):
        counted({"dp_shard": 2}, optimizer={"name": "adamw", "groups": [{"match": "block.1.*", "frozen": True}]})


MIXED = {"family": "mixtral", "experts": {"count": 4, "active": 2, "ffn_width": 64}}


@pytest.mark.parametrize(
    ("layout", "keys"),
    [
        ({"dp_shard": 4}, {}),
        ({"dp_shard": 4, "ep": 2}, {}),
        ({"dp_shard": 4, "ep": 4}, {"recompute": "full"}),
        ({"dp_shard": 4, "ep": 2, "zero_stage": 1}, {}),
        ({"dp_replicate": 4, "ep": 2}, {}),
        ({"dp_replicate": 2, "dp_shard": 2, "ep": 4}, {}),
        ({"pp": 3, "dp_shard": 2, "ep": 2}, {}),
    ],
)
def test_what_ranks_with_experts_send_is_what_is_planned(layout, keys) -> None:
    run = counted(layout, shape=MIXED, micro_batch=2, **keys)
    for rank in run.ranks:
        planned_ = {(each.kind, each.axis): (each.count, each.size_bytes) for each in rank.planned_sent}
        assert messages(rank) == {key: (count, pytest.approx(size)) for key, (count, size) in planned_.items()}
    kinds = {each.kind for rank in run.ranks for each in rank.sent}
    assert ("all-to-all" in kinds) == ("ep" in layout)
