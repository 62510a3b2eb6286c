from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.models import model as catalogue_model
from trainwright.hardware.nodes import cluster as catalogue_cluster
from trainwright.hardware.stacks import read_stack
from trainwright.planner.predict.forecast import forecast
from trainwright.planner.predict.layouts import Layouts
from trainwright.planner.search.candidates import candidates
from trainwright.planner.search.layouts import UNSURE, best_layouts, compare, step_seconds, why_not
from trainwright.spec.workload import Workload

STACK, MODEL = read_stack("default"), catalogue_model("llama3-8b")
WORK = Workload(
    sequence_tokens=8192, batch_tokens=64 * 8192, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)  # fmt: skip
CLUSTER = catalogue_cluster("2x8xa100-sxm-80gb")


def test_the_best_are_the_fastest_of_all_that_fit():
    every = candidates(MODEL, WORK, [16], CLUSTER, STACK).layouts
    found = forecast(MODEL, WORK, every, CLUSTER, STACK)
    seconds = found.step_s * np.where(found.memory.uncertain(CLUSTER.device), UNSURE, 1.0)
    fits = found.memory.fits(CLUSTER.device)
    best = best_layouts(MODEL, WORK, CLUSTER, STACK, count=5)
    assert len(best) == 5
    assert all(each.fits and each.devices == 16 for each in best)
    ranks = [each.step_s * (UNSURE if each.unsure else 1.0) for each in best]
    assert ranks == sorted(ranks)
    assert ranks[0] == pytest.approx(np.min(seconds[fits]))


def test_a_ranked_layout_says_what_its_forecast_says():
    (best,) = best_layouts(MODEL, WORK, CLUSTER, STACK, count=1)
    found = forecast(MODEL, WORK, Layouts.of([best.parallel], [best.recompute], WORK), CLUSTER, STACK)
    assert best.step_s == pytest.approx(found.step_s[0])
    assert best.mfu == pytest.approx(found.mfu[0])
    assert best.memory_bytes == pytest.approx(found.memory.needed_bytes[0])
    assert best.low_s < best.step_s < best.high_s
    assert best.tokens_per_s_per_device * 16 * best.step_s == pytest.approx(WORK.batch_tokens)


def test_layouts_whose_time_is_not_counted_are_never_the_fastest():
    found = compare(MODEL, WORK, [16], CLUSTER, STACK)
    every = step_seconds(MODEL, WORK, found.layouts, CLUSTER, STACK)
    counted = np.isfinite(found.step_s)
    assert np.array_equal(every[counted], found.step_s[counted])
    # Left out although they fit: the same layout with less recomputation is there, and no slower.
    full = found.layouts.has("recompute", "full")
    pairs = every.reshape(-1, 2)
    assert np.all(pairs[:, 0] <= pairs[:, 1])
    assert np.all(counted.reshape(-1, 2).sum(axis=1) <= 1)
    assert counted[full].any()
    assert counted[~full].any()


def test_where_nothing_fits_the_nearest_comes_first_and_is_said_not_to():
    small = catalogue_cluster("2xa100-sxm-40gb")
    found = best_layouts(MODEL, WORK, small, STACK, count=4)
    assert not any(each.fits for each in found)
    sizes = [each.memory_bytes for each in found]
    assert sizes == sorted(sizes)
    reasons = {each.rule: each.reason for each in why_not(MODEL, WORK, small, STACK)}
    assert "weights, gradients and optimizer state alone are" in reasons["states"]


def test_a_run_that_only_fits_wastefully_is_found():
    # Two sequences on eight devices: a pipeline of more stages than micro batches, or slices of a short sequence.
    work = replace(WORK, batch_tokens=2 * 2048, sequence_tokens=2048)
    model = replace(MODEL, kv_heads=1, heads=1, head_size=4096)
    best = best_layouts(model, work, catalogue_cluster("8xh100-sxm"), STACK, count=1)
    assert best
    assert best[0].fits


def test_reasons_for_what_needs_too_much_when_it_works():
    reasons = {each.rule: each for each in why_not(MODEL, WORK, CLUSTER, STACK)}
    assert reasons["activations"].reason.startswith("states fit, but the peak is 1.0x")
    assert all(each.layouts > 0 for each in reasons.values())


def test_a_batch_that_nothing_divides_gives_no_layout():
    work = replace(WORK, batch_tokens=8191, sequence_tokens=8191)
    assert best_layouts(replace(MODEL, heads=1, kv_heads=1, layers=1), work, CLUSTER, STACK) == []


def test_a_precision_that_the_device_has_no_rate_for():
    with pytest.raises(RecipeError, match=r"gtx-1080-ti: no bf16 rate is known \(expected one of fp32\)"):
        compare(MODEL, WORK, [1], catalogue_cluster("gtx-1080-ti"), STACK)


def test_offload_makes_room_and_takes_time():
    small = catalogue_cluster("2xa100-sxm-80gb")
    none, offloaded = (
        best_layouts(MODEL, WORK, small, STACK, count=1, offload=how)[0] for how in ("none", "optimizer")
    )
    assert (none.fits, offloaded.fits) == (False, True)
    assert offloaded.host_bytes > 0 == none.host_bytes
    assert offloaded.parallel.offload == "optimizer"
