from __future__ import annotations

import math
import random
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.models import numbers_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.candidates import (
    candidates,
    divisors,
    parallel_plan,
    stage_counts,
    tensor_counts,
)
from trainwright.planner.search.layouts import too_large
from trainwright.spec.parts.batch_sizes import BatchPart
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Workload

STACK = read_stack("default")
DENSE = numbers_model("layers=8,width=2048,heads=16,kv_heads=4,vocabulary=32000,context_tokens=8192")
MIXED = replace(
    numbers_model("layers=4,width=1024,heads=8,vocabulary=32000,experts=8,active_experts=2,expert_ffn_width=1408"),
    context_tokens=8192,
)


def work(sequences, sequence_tokens=4096, **options):
    return Workload(
        sequence_tokens=sequence_tokens,
        batch_tokens=sequences * sequence_tokens,
        steps=1,
        precision="bf16",
        optimizer="adamw",
        states="mixed",
        **options,
    )


def every_plan(model, workload, cluster):
    """All that ``ParallelPlan`` calls possible, from loops over every degree."""
    n = cluster.devices
    degrees = divisors(n)
    for tp, pp, cp, shard, ep, virtual in product(degrees, degrees, degrees, degrees, degrees, (1, 2, 4)):
        if n % (tp * pp * cp * shard) or (virtual > 1 and pp == 1):
            continue
        for micro, zero in product(divisors(workload.batch_sequences), (0, 1, 2, 3)):
            plan = ParallelPlan(
                tp=tp,
                pp=pp,
                cp=cp,
                dp_shard=shard,
                dp_replicate=n // (tp * pp * cp * shard),
                ep=ep,
                micro_batch_sequences=micro,
                zero_stage=zero,
                virtual_stages=virtual,
                schedule="interleaved" if virtual > 1 else "1f1b",
            )
            if runs(plan, model, workload, cluster):
                yield plan


def runs(plan, model, workload, cluster):
    # A pipeline that interleaves needs a multiple of its stages as micro batches, and accumulates gradients whole.
    micro_batches = math.ceil(
        workload.batch_sequences / (plan.dp_replicate * plan.dp_shard * plan.micro_batch_sequences)
    )
    if plan.virtual_stages > 1 and micro_batches % plan.pp:
        return False
    return not (plan.zero_stage == 2 and plan.pp > 1) and not plan.problems(model, workload, cluster)


CASES = [
    (DENSE, work(16), "8xh100-sxm"),
    (DENSE, work(16, 8192), "8xa100-pcie-40gb"),
    (DENSE, work(8), "2x4xh100-sxm"),
    (MIXED, work(16), "8xh100-sxm"),
    (catalogue_model("llama3-8b"), work(8, 8192), "8xa100-sxm-80gb"),
    (catalogue_model("llama3-8b"), work(16, 4096), "8xa100-sxm-40gb"),
    (catalogue_model("qwen2.5-14b"), work(16), "8xmi210"),
    (catalogue_model("llama3-8b"), work(1, 131_072), "8xh100-sxm"),
    (catalogue_model("llama3-8b"), work(2, 65_536), "8xh100-sxm"),
    (replace(DENSE, layers=31), work(16), "8xa100-pcie-40gb"),
    (replace(DENSE, layers=26), work(16), "8xa100-pcie-40gb"),
]


@pytest.mark.parametrize(("model", "workload", "name"), CASES)
def test_nothing_that_can_run_is_faster_than_the_best_candidate(model, workload, name):
    cluster = catalogue_cluster(name)
    plans = list(every_plan(model, workload, cluster))
    pairs = [(plan, recompute) for plan in plans for recompute in ("none", "full")]
    all_of_them = Layouts.of([pair[0] for pair in pairs], [pair[1] for pair in pairs], workload)
    brute = forecast(RunSpec(model=model, workload=workload, cluster=cluster, stack=STACK), all_of_them, CATALOGUE)
    fastest = np.min(brute.step_s[brute.memory.fits(cluster.device)])
    left = candidates(RunSpec(model=model, workload=workload, cluster=cluster, stack=STACK), [cluster.devices]).layouts
    prediction = forecast(RunSpec(model=model, workload=workload, cluster=cluster, stack=STACK), left, CATALOGUE)
    best = np.min(prediction.step_s[prediction.memory.fits(cluster.device)])
    assert len(left) < len(all_of_them)
    assert best <= 1.005 * fastest


@pytest.mark.parametrize(
    ("name", "machines", "sequence_tokens", "sequences"),
    [
        ("llama3.1-70b", "16x8xa100-sxm-80gb", 8192, 512),
        ("llama3.1-405b", "128x8xh100-sxm", 8192, 1024),
        ("mixtral-8x22b", "32x8xh100-sxm", 8192, 512),
        ("qwen3-235b-a22b", "64x8xh100-sxm", 4096, 2048),
        ("gpt3-175b", "96x8xa100-sxm-80gb", 2048, 1536),
        ("deepseek-v3", "64x8xh800-sxm", 4096, 3840),
        ("llama3-8b", "4x8xrtx-4090", 4096, 256),
        ("gpt2-xl", "4x8xt4", 1024, 512),
        ("llama3.1-8b", "64x4xgb200", 131_072, 256),
    ],
)
def test_none_of_thousands_drawn_at_random_is_faster(name, machines, sequence_tokens, sequences):
    model, cluster, workload = (
        catalogue_model(name),
        catalogue_cluster(machines),
        work(sequences, sequence_tokens),
    )
    draw, plans = random.Random(name), set()
    for _ in range(20_000):
        tp, pp = draw.choice(tensor_counts(model)), draw.choice(stage_counts(model))
        cp, virtual = draw.choice((1, 1, 2, 4, 8, 16)), draw.choice((1, 1, 2, 4, 8)) if pp > 1 else 1
        if cluster.devices % (tp * pp * cp):
            continue
        data = cluster.devices // (tp * pp * cp)
        shard = draw.choice(divisors(data))
        plan = ParallelPlan(
            tp=tp,
            pp=pp,
            cp=cp,
            dp_shard=shard,
            dp_replicate=data // shard,
            virtual_stages=virtual,
            ep=draw.choice(divisors(model.experts.count)) if model.experts else 1,
            zero_stage=draw.choice((0, 1, 2, 3)),
            micro_batch_sequences=draw.choice((1, 1, 2, 4, 8, 16, 32)),
            schedule="interleaved" if virtual > 1 else "1f1b",
        )
        if runs(plan, model, workload, cluster):
            plans.add(plan)
    pairs = [(plan, recompute) for plan in sorted(plans, key=str) for recompute in ("none", "full")]
    drawn = Layouts.of([pair[0] for pair in pairs], [pair[1] for pair in pairs], workload)
    prediction = forecast(RunSpec(model=model, workload=workload, cluster=cluster, stack=STACK), drawn, CATALOGUE)
    fits = prediction.memory.fits(cluster.device) & ~prediction.memory.uncertain(cluster.device)
    left = forecast(
        RunSpec(model=model, workload=workload, cluster=cluster, stack=STACK),
        candidates(RunSpec(model=model, workload=workload, cluster=cluster, stack=STACK), [cluster.devices]).layouts,
        CATALOGUE,
    )
    best = np.min(left.step_s[left.memory.fits(cluster.device) & ~left.memory.uncertain(cluster.device)])
    assert fits.any()
    assert best <= 1.005 * np.min(prediction.step_s[fits])


@pytest.mark.parametrize(("model", "workload", "name"), CASES)
@pytest.mark.parametrize("wasteful", [False, True])
def test_every_candidate_can_run(model, workload, name, wasteful):
    cluster = catalogue_cluster(name)
    possible = set(every_plan(model, workload, cluster))
    left = candidates(
        RunSpec(model=model, workload=workload, cluster=cluster, stack=STACK), [cluster.devices], wasteful=wasteful
    ).layouts
    plans = {parallel_plan(left, place)[0] for place in range(len(left))}
    assert plans
    assert plans <= possible


def test_several_numbers_of_devices_are_the_same_as_each_alone():
    cluster = catalogue_cluster("8x8xh100-sxm")
    together = candidates(RunSpec(model=DENSE, workload=work(64), cluster=cluster, stack=STACK), [1, 8, 16, 64])
    alone = [
        candidates(RunSpec(model=DENSE, workload=work(64), cluster=cluster, stack=STACK), [n]) for n in (1, 8, 16, 64)
    ]
    assert len(together.layouts) == sum(len(each.layouts) for each in alone)
    plans = {parallel_plan(each.layouts, place) for each in alone for place in range(len(each.layouts))}
    assert {parallel_plan(together.layouts, place) for place in range(len(together.layouts))} == plans


def test_classes_that_are_left_out_are_counted_with_a_reason():
    cluster = catalogue_cluster("2x8xh100-sxm")
    model = numbers_model("layers=8,width=2048,heads=16,vocabulary=32000,context_tokens=8192")
    left = candidates(RunSpec(model=model, workload=work(4), cluster=cluster, stack=STACK), [16])
    reasons = {each.rule: each for each in left.pruned}
    assert "16 ranks leave the 8 devices that the fastest links join" in reasons["tensor parallel"].reason
    assert (
        "8 and 16 ranks have less than one of the batch's 4 sequences"
        in reasons["data parallel, beyond the batch"].reason
    )
    assert "idle" in reasons["pipeline parallel"].reason
    assert all(each.layouts > 0 for each in left.pruned)


def test_candidates_divide_each_size_of_a_batch_that_grows():
    machines = catalogue_cluster("2x8xh100-sxm")
    asked = replace(work(96), ramp=tuple(BatchPart(batch_tokens=size * 4096, steps=1) for size in (24, 48)))
    run = RunSpec(model=DENSE, workload=asked, cluster=machines, stack=STACK)
    found, plain = candidates(run, [16]), candidates(replace(run, workload=work(96)), [16])
    per_pass = found.layouts.data_parallel * found.layouts.micro_batch
    assert len(found.layouts) and set(24 % per_pass) == {0}
    assert set(24 % (plain.layouts.data_parallel * plain.layouts.micro_batch)) != {0}
    assert any(each.rule == "batch ramp" for each in found.pruned)


def test_a_smaller_batch_of_images_is_one_pass_too():
    ramp = (BatchPart(batch_tokens=16, steps=1),)
    images = Workload(sequence_tokens=1, batch_tokens=64, steps=2, precision="fp32", optimizer="adamw", ramp=ramp)
    machines, model = catalogue_cluster("8xh100-sxm"), catalogue_model("resnet-50")
    left = candidates(RunSpec(model=model, workload=images, cluster=machines, stack=STACK), [1, 8], wasteful=True)
    assert 64.0 in set(left.layouts.micro_batch) and set(left.layouts.data_parallel) == {1.0, 8.0}


def test_selective_recomputation_is_tried_where_it_spares_something():
    cluster = catalogue_cluster("8xh100-sxm")

    def left(stack=STACK, layout=None, model=DENSE, **workload):
        run = RunSpec(model=model, workload=work(16, **workload), cluster=cluster, stack=stack)
        return candidates(run, [8], layout=layout)

    whole, fused = left(fused_attention=False), left()
    assert (whole.recomputes, fused.recomputes) == (3, 2)
    assert len(whole.layouts) == 3 * len(fused.layouts) // 2
    assert "recompute" in {each.rule for each in fused.pruned}
    # This trainer makes again what lies between products, whatever attention is; others are asked for it.
    llama = replace(DENSE, family="llama")
    ours, plain = (left(read_stack(OURS), layout, llama) for layout in (None, {"recompute": "none"}))
    assert (ours.recomputes, len(ours.layouts)) == (3, 3 * len(plain.layouts))
    asked, full = left(layout={"recompute": "selective"}), left(layout={"recompute": "full"})
    assert len(asked.layouts) == len(full.layouts) > 0
    assert "recompute" not in {each.rule for each in (*ours.pruned, *asked.pruned)}


def test_recomputations_of_one_layout_stand_side_by_side():
    left = candidates(
        RunSpec(model=DENSE, workload=work(16), cluster=catalogue_cluster("8xh100-sxm"), stack=STACK), [8]
    )
    for field in fields(left.layouts):
        column = getattr(left.layouts, field.name).reshape(-1, left.recomputes)
        assert np.all(column == column[:, :1]) != (field.name == "recompute")


def test_a_layout_goes_to_a_plan_and_back():
    workload = work(16)
    left = candidates(
        RunSpec(model=DENSE, workload=workload, cluster=catalogue_cluster("8xh100-sxm"), stack=STACK), [8]
    ).layouts
    pairs = [parallel_plan(left, place) for place in range(len(left))]
    again = Layouts.of([pair[0] for pair in pairs], [pair[1] for pair in pairs], workload)
    for field in fields(left):
        assert np.array_equal(getattr(left, field.name), getattr(again, field.name)), field.name


def test_llama_405b_is_cut_into_sixteen_stages():
    model = catalogue_model("llama3.1-405b")
    assert {1, 2, 3, 7, 14, 16, 32, 64, 126} <= set(stage_counts(model))
    assert {20, 28, 128} & set(stage_counts(model)) == set()


def test_deepseek_v3_is_cut_unevenly():
    """61 layers, a prime number, on 16 ranks (arXiv 2412.19437, section 3.2.1): at most 4 on one of them."""
    model = catalogue_model("deepseek-v3")
    assert {1, 2, 4, 8, 16, 32} <= set(stage_counts(model))
    assert 61 in stage_counts(model.deployed())
    assert {40, 48, 60} & set(stage_counts(model)) == set()
    left = candidates(
        RunSpec(model=model, workload=work(15360), cluster=catalogue_cluster("256x8xh800-sxm"), stack=STACK), [2048]
    ).layouts
    assert {1, 2, 4, 8, 16} <= set(left.pp)


def test_key_heads_are_divided_or_copied():
    assert tensor_counts(DENSE) == (1, 2, 4, 8, 16)
    assert tensor_counts(replace(DENSE, heads=12, kv_heads=3)) == (1, 3, 6, 12)


def test_numbers_that_divide():
    assert divisors(12) == (1, 2, 3, 4, 6, 12)
    assert too_large("activations", 1.04, 17.6) == "states fit, but the peak is 1.0x to 18x the memory"
    assert too_large("activations", 1.4, 1.4) == "states fit, but the peak is 1.4x the memory"


def test_zero_bubble_schedules_are_tried_where_the_stack_has_them():
    workload, cluster = work(16), catalogue_cluster("8xh100-sxm")
    with_it = candidates(
        RunSpec(model=DENSE, workload=workload, cluster=cluster, stack=read_stack("torchtitan")), [8]
    ).layouts
    without = candidates(RunSpec(model=DENSE, workload=workload, cluster=cluster, stack=STACK), [8]).layouts
    filled = with_it.has("schedule", "zero_bubble")
    assert np.all(with_it.pp[filled] > 1) and np.all(with_it.virtual_stages[filled] == 1)
    plain = (without.pp > 1) & without.has("schedule", "1f1b")
    assert filled.sum() == plain.sum() > 0
    assert not without.has("schedule", "zero_bubble").any()
    assert np.array_equal(with_it.virtual_stages > 1, with_it.has("schedule", "interleaved"))


def test_pipelines_run_both_ways_where_the_stack_does_and_micro_batches_suffice():
    workload, cluster, model = work(64), catalogue_cluster("2x8xh800-sxm"), catalogue_model("deepseek-v2-lite")
    left = candidates(
        RunSpec(model=model, workload=workload, cluster=cluster, stack=read_stack("hai-llm")), [16]
    ).layouts
    both = left.has("schedule", "dualpipe")
    assert both.any() and not left.has("schedule", "interleaved")[both].any()
    assert np.all(left.pp[both] % 2 == 0) and np.all(left.micro_batches[both] >= 2 * left.pp[both])
    plain = left.has("schedule", "1f1b") & (left.pp % 2 == 0) & (left.virtual_stages == 1)
    plain &= (left.micro_batches >= 2 * left.pp) & (left.micro_batches % 2 == 0)
    assert both.sum() == plain.sum()
    assert (
        not candidates(RunSpec(model=model, workload=workload, cluster=cluster, stack=STACK), [16])
        .layouts.has("schedule", "dualpipe")
        .any()
    )


def test_narrow_experts_lie_on_tensor_parallel_neighbours_too():
    cluster = catalogue_cluster("8x8xh800-sxm")
    run = RunSpec(model=catalogue_model("deepseek-v3"), workload=work(64), cluster=cluster, stack=STACK)
    left = candidates(run, [64]).layouts
    assert np.any(left.ep > left.dp_shard * left.cp)
    assert np.all(left.dp_shard * left.cp * left.tp % left.ep == 0)
    wide = candidates(
        RunSpec(
            model=catalogue_model("mixtral-8x7b"),
            workload=work(64),
            cluster=catalogue_cluster("8x8xh800-sxm"),
            stack=STACK,
        ),
        [64],
    ).layouts
    assert np.all(wide.dp_shard * wide.cp % wide.ep == 0)


def test_updates_in_the_backward_pass_take_steps_of_one_micro_batch():
    cluster = catalogue_cluster("8xh100-sxm")
    run = RunSpec(model=DENSE, workload=work(96, update_in_backward=True), cluster=cluster, stack=STACK)
    layouts = candidates(run, [8], wasteful=True).layouts
    assert len(layouts) and set(layouts.micro_batches) == {1.0}
    # However many tokens that is, and whether a power of two or not.
    assert {12.0, 96.0} <= set(layouts.micro_batch)
    fixed = candidates(run, [8], wasteful=True, layout={"micro_batch": 12}).layouts
    assert set(fixed.data_parallel) == {8.0}
    assert not len(candidates(run, [8], wasteful=True, layout={"micro_batch": 5}).layouts)


@pytest.mark.parametrize("sequences", [1, 4])
def test_nothing_that_can_run_needs_less_memory_than_the_least_candidate(sequences):
    """Of one sequence for eight devices the ranks of ``cp`` alone share states, as ``fully_shard`` over their mesh."""
    cluster, workload = catalogue_cluster("8xh100-sxm"), work(sequences, 32_768)
    run = RunSpec(model=DENSE, workload=workload, cluster=cluster, stack=STACK)
    found = candidates(run, [8], wasteful=True).layouts
    every = list(every_plan(DENSE, workload, cluster))
    brute = Layouts.of(every, ["full"] * len(every), workload)
    needed, least = (forecast(run, layouts, CATALOGUE).memory.needed_bytes for layouts in (found, brute))
    assert needed.min() == pytest.approx(least.min())
    if sequences == 1:
        assert set(found.zero_stage[found.cp == 8]) == {0, 1, 2, 3}
        assert found.zero_stage[np.argmin(np.where(found.cp == 8, needed, np.inf))] == 3


@pytest.mark.parametrize(("images", "each"), [(255, 85), (264, 88), (300, 100)])
def test_images_of_a_rank_are_one_pass_however_many(images, each):
    run = RunSpec(
        model=catalogue_model("resnet-50"),
        workload=work(images, 1),
        cluster=catalogue_cluster("3xh100-sxm"),
        stack=STACK,
    )
    found = candidates(run, [3]).layouts
    assert each in found.micro_batch and set((images // 3) % found.micro_batch) == {0}
