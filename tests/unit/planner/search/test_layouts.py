from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.layouts import MANY, RECOMPUTES, Layouts
from trainwright.planner.forecast.forecast import forecast, step_s
from trainwright.planner.forecast.memory.table import predict_memory, usable_bytes
from trainwright.planner.forecast.networks import TRANSFORMERS
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.candidates import candidates
from trainwright.planner.search.layouts import PLAIN, UNSURE, best_layouts, compare, longer, plainest, splits
from trainwright.planner.search.memo import Memo
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Workload

STACK, MODEL = read_stack("default"), catalogue_model("llama3-8b")
STACK = replace(STACK, memory=replace(STACK.memory, update_copies=1.0))  # AdamW for each: just too much for two A100
WORK = Workload(
    sequence_tokens=8192, batch_tokens=64 * 8192, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)
CLUSTER = catalogue_cluster("2x8xa100-sxm-80gb")


def left_out(run):
    return compare(run, [run.cluster.devices]).pruned


def test_the_best_are_the_fastest_of_all_that_fit():
    every = candidates(RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK), [16]).layouts
    prediction = forecast(RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK), every, CATALOGUE)
    seconds = prediction.step_s * np.asarray(UNSURE)[prediction.memory.doubt(CLUSTER.device)]
    fits = prediction.memory.fits(CLUSTER.device)
    best = best_layouts(RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK), count=5)
    assert len(best) == 5
    assert all(each.fits and each.devices == 16 for each in best)
    places = [int(np.argmin(np.abs(prediction.step_s - each.step_s))) for each in best]
    ranks = seconds[places]
    # The plainest of those that are about as fast, then by time.
    assert list(ranks[1:]) == sorted(ranks[1:])
    assert np.min(ranks) == pytest.approx(np.min(seconds[fits]))
    assert ranks[0] <= PLAIN * np.min(ranks)


def test_a_ranked_layout_says_what_its_forecast_says():
    (best,) = best_layouts(RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK), count=1)
    prediction = forecast(
        RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK),
        Layouts.of([best.parallel], [best.recompute], WORK),
        CATALOGUE,
    )
    assert best.step_s == pytest.approx(prediction.step_s[0])
    assert best.mfu == pytest.approx(prediction.mfu[0])
    assert best.memory_bytes == pytest.approx(prediction.memory.needed_bytes[0])
    assert best.low_s < best.step_s < best.high_s
    assert best.tokens_per_s_per_device * 16 * best.step_s == pytest.approx(WORK.batch_tokens)


def test_layouts_whose_time_is_not_counted_are_never_the_fastest():
    compared = compare(RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK), [16])
    every = step_s(RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK), compared.layouts, CATALOGUE)
    counted = np.isfinite(compared.step_s)
    assert np.array_equal(every[counted], compared.step_s[counted])
    # Left out although they fit: the same layout with less recomputation is there, and no slower.
    full = compared.layouts.has("recompute", "full")
    pairs = every.reshape(-1, 2)
    assert np.all(pairs[:, 0] <= pairs[:, 1])
    assert np.all(counted.reshape(-1, 2).sum(axis=1) <= 1)
    assert counted[full].any()
    assert counted[~full].any()


def test_where_nothing_fits_the_nearest_comes_first_and_is_said_not_to():
    small = catalogue_cluster("2xa100-sxm-40gb")
    ranked = best_layouts(RunSpec(model=MODEL, workload=WORK, cluster=small, stack=STACK), count=4)
    assert not any(each.fits for each in ranked)
    sizes = [each.memory_bytes for each in ranked]
    assert sizes == sorted(sizes)
    reasons = {
        each.rule: each.reason for each in left_out(RunSpec(model=MODEL, workload=WORK, cluster=small, stack=STACK))
    }
    assert "weights, gradients and optimizer state alone are" in reasons["states"]


def test_a_run_that_only_fits_wastefully_is_found():
    # Two sequences on eight devices: a pipeline of more stages than micro batches, or slices of a short sequence.
    work = replace(WORK, batch_tokens=2 * 2048, sequence_tokens=2048)
    model = replace(MODEL, kv_heads=1, heads=1, head_size=4096)
    best = best_layouts(
        RunSpec(model=model, workload=work, cluster=catalogue_cluster("8xh100-sxm"), stack=STACK), count=1
    )
    assert best
    assert best[0].fits


def test_the_reason_for_states_names_the_least_and_the_most():
    model, small = catalogue_model("llama3-70b"), catalogue_cluster("8xa100-sxm-80gb")
    (reason,) = [
        each.reason
        for each in left_out(RunSpec(model=model, workload=WORK, cluster=small, stack=STACK))
        if each.rule == "states"
    ]
    # All that is trained shared by eight, and by none.
    both = Layouts.of([ParallelPlan(dp_shard=8), ParallelPlan(dp_replicate=8, zero_stage=0)], ["full"] * 2, WORK)
    each = TRANSFORMERS.states_bytes(
        RunSpec(model=model, workload=WORK, cluster=small, stack=STACK), both
    ) / usable_bytes(small.device)
    assert each[0] > 1.4
    assert f"to {each[1]:.0f}x the memory" in reason


def test_states_alone_are_never_more_than_the_peak():
    for name in ("llama3-8b", "mixtral-8x7b", "gpt2"):
        model = catalogue_model(name)
        work = replace(WORK, sequence_tokens=1024, batch_tokens=64 * 1024)
        layouts = candidates(
            RunSpec(model=model, workload=work, cluster=CLUSTER, stack=STACK), [1, 8, 16], wasteful=True
        ).layouts
        peak = predict_memory(RunSpec(model=model, workload=work, cluster=CLUSTER, stack=STACK), layouts).needed_bytes
        assert np.all(
            TRANSFORMERS.states_bytes(RunSpec(model=model, workload=work, cluster=CLUSTER, stack=STACK), layouts)
            <= peak
        )


def test_a_memo_changes_nothing_but_the_time():
    memo = Memo()
    for name in ("a100-sxm-80gb", "a800-sxm-80gb", "a100-sxm-40gb", "h100-sxm"):
        cluster = catalogue_cluster(f"2x8x{name}")
        shared = compare(
            RunSpec(model=MODEL, workload=WORK, cluster=cluster, stack=STACK), [8, 16], thorough=False, memo=memo
        )
        alone = compare(RunSpec(model=MODEL, workload=WORK, cluster=cluster, stack=STACK), [8, 16], thorough=False)
        assert np.array_equal(shared.step_s, alone.step_s)
        assert np.array_equal(shared.memory_bytes, alone.memory_bytes)
        assert shared.pruned == alone.pruned


def test_a_memo_lets_no_device_through_that_the_software_does_not_run_on():
    """An MI300X and a Gaudi 3 have the same layouts; torchtitan runs on one of them (its README)."""
    for names in (("mi300x", "gaudi3"), ("gaudi3", "mi300x")):
        memo = Memo()
        for name in names:
            run = RunSpec(
                model=MODEL, workload=WORK, cluster=catalogue_cluster(f"8x{name}"), stack=read_stack("torchtitan")
            )
            if name == "mi300x":
                assert compare(run, [8], thorough=False, memo=memo).fits.any()
            else:
                with pytest.raises(RecipeError, match="torchtitan"):
                    compare(run, [8], thorough=False, memo=memo)


def test_reasons_for_what_needs_too_much_when_it_works():
    reasons = {each.rule: each for each in left_out(RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK))}
    assert reasons["activations"].reason.startswith("states fit, but the peak is 1.0x")
    assert all(each.layouts > 0 for each in reasons.values())


def test_a_batch_that_nothing_divides_gives_no_layout():
    work = replace(WORK, batch_tokens=8191, sequence_tokens=8191)
    assert (
        best_layouts(
            RunSpec(model=replace(MODEL, heads=1, kv_heads=1, layers=1), workload=work, cluster=CLUSTER, stack=STACK)
        )
        == []
    )


def test_a_precision_that_the_device_has_no_rate_for():
    with pytest.raises(RecipeError, match=r"gtx-1080-ti: no bf16 rate is known \(expected one of fp32\)"):
        compare(RunSpec(model=MODEL, workload=WORK, cluster=catalogue_cluster("gtx-1080-ti"), stack=STACK), [1])


def test_offload_makes_room_and_takes_time():
    small = catalogue_cluster("2xa100-sxm-80gb")
    none, offloaded = (
        best_layouts(RunSpec(model=MODEL, workload=WORK, cluster=small, stack=STACK), count=1, offload=how)[0]
        for how in ("none", "optimizer")
    )
    assert (none.fits, offloaded.fits) == (False, True)
    assert offloaded.host_bytes > 0 == none.host_bytes
    assert offloaded.parallel.offload == "optimizer"


def test_a_convolutional_network_is_laid_out_by_data_parallelism():
    model, cluster = catalogue_model("resnet-50"), catalogue_cluster("2x8xv100-sxm-32gb")
    work = Workload(sequence_tokens=1, batch_tokens=1024, steps=1, precision="fp16", optimizer="sgd")
    plans = [
        ParallelPlan(dp_replicate=16 // shard, dp_shard=shard, zero_stage=zero, micro_batch_sequences=1 << power)
        for shard in (1, 2, 4, 8, 16)
        for zero in ((0,) if shard == 1 else (1, 2, 3))
        for power in range(7)
    ]
    prediction = forecast(
        RunSpec(model=model, workload=work, cluster=cluster, stack=STACK),
        Layouts.of(plans, ["none"] * len(plans), work),
        CATALOGUE,
    )
    sure = prediction.memory.fits(cluster.device) & ~prediction.memory.uncertain(cluster.device)
    replicas = np.array([plan.dp_shard == 1 for plan in plans])
    (best,) = best_layouts(RunSpec(model=model, workload=work, cluster=cluster, stack=STACK), count=1)
    assert best.fits and best.recompute == "none" and best.parallel.dp_replicate == 16
    assert best.step_s == pytest.approx(np.min(prediction.step_s[sure & replicas]))
    assert best.step_s <= PLAIN * np.min(prediction.step_s[sure])


def test_where_nothing_divides_nothing_is_compared():
    """Of this trainer's own modules too, whose tensors are counted one by one."""
    run = RunSpec(
        model=MODEL,
        workload=replace(WORK, batch_tokens=3 * 8192),
        cluster=catalogue_cluster("8xh100-sxm"),
        stack=read_stack("trainwright"),
    )
    compared = compare(run, [8], layout={"cp": 1, "tp": 1, "pp": 1})
    assert not len(compared.layouts) and not compared.fits.any() and not len(compared.order())


def test_selective_recomputation_is_searched_where_it_is_asked_for():
    """Fused attention writes no scores that it would spare in other software (decision 0037)."""
    run = RunSpec(model=MODEL, workload=WORK, cluster=catalogue_cluster("8xh100-sxm"), stack=read_stack("torchtitan"))
    free, asked = (compare(run, [8], layout=each).layouts.recompute for each in ({}, {"recompute": "selective"}))
    selective = RECOMPUTES.index("selective")
    assert len(free) and selective not in free
    assert len(asked) and set(asked.tolist()) == {selective}


def test_what_is_not_executed_is_left_out_with_its_reason():
    run = RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK)
    every, left = (compare(run, [16], refuses=each) for each in (None, no_tensor_parallel))
    kept = every.layouts.take(every.layouts.tp == 1)
    assert [list(getattr(kept, name)) for name in vars_of(kept)] == [
        list(getattr(left.layouts, name)) for name in vars_of(kept)
    ]
    struck = {each.reason: each.layouts for each in left.pruned if each.rule == "not executed"}
    assert struck == {f"tp={tp}: no": int(np.sum(every.layouts.tp == tp)) for tp in (2, 4, 8)}
    fitting = every.step_s[every.layouts.tp == 1]
    assert np.min(left.step_s) == np.min(fitting)


def no_tensor_parallel(parallel, recompute):
    return (f"tp={parallel.tp}: no",) if parallel.tp > 1 else ()


def vars_of(layouts):
    return [each.name for each in fields(layouts)]


@pytest.mark.parametrize(
    ("name", "software", "machines", "asked"),
    [
        ("llama3.1-8b", "default", "16x8xh100-sxm", {}),
        ("llama3.1-8b", "trainwright", "16x8xl40s", {"optimizer": "muon", "states": "mixed"}),
        ("mixtral-8x7b", "megatron-core", "16x8xh100-sxm", {"precision": "fp8"}),
        ("deepseek-v3", "hai-llm", "64x8xh800-sxm", {"precision": "fp8"}),
        ("bert-large", "default", "4x8xv100-sxm-16gb", {"precision": "fp16"}),
    ],
)
def test_many_layouts_are_timed_as_each_of_them_alone(name, software, machines, asked):
    """What equal parts of layouts share is counted once; a layout alone shares nothing."""
    model = catalogue_model(name)
    tokens = 512
    work = {"sequence_tokens": tokens, "batch_tokens": 512 * tokens, "steps": 10, "precision": "bf16"}
    run = RunSpec(
        model=model,
        workload=Workload(**{**work, "optimizer": "adamw", **asked}),
        cluster=catalogue_cluster(machines),
        stack=read_stack(software),
    )
    counts = [1 << power for power in range(10) if 1 << power <= run.cluster.devices]
    rows = candidates(run, counts, wasteful=True).layouts
    assert len(rows) > 10 * MANY
    together = step_s(run, rows, CATALOGUE)
    for place in np.random.default_rng(1).choice(len(rows), 150, replace=False):
        alone = step_s(run, rows.take(np.asarray([place])), CATALOGUE)
        assert together[place] == pytest.approx(float(alone[0]), rel=1e-12)


def test_what_probably_fits_comes_before_what_is_uncertain():
    """Not where it is much slower: of a run that may be lost nobody knows what it costs."""
    probable, uncertain = np.array([1]), np.array([2])
    for frugal, bought in ((False, 1.09), (True, 1.49)):
        assert longer(probable, frugal=frugal) * bought < longer(uncertain, frugal=frugal)
        assert longer(probable, frugal=frugal) * 1.6 > longer(uncertain, frugal=frugal)


def test_a_plainer_layout_is_no_less_sure_to_fit():
    left = candidates(RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK), [16]).layouts
    pair = left.take(np.asarray([np.argmax(splits(left)), np.argmin(splits(left))]))
    seconds = np.array([1.0, 1.01])
    assert [plainest(pair, seconds, np.array([1, doubt])) for doubt in (0, 1, 2)] == [1, 1, 0]
