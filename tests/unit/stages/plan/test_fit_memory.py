"""What is chosen for so many bytes fits them, is the fastest of all that does, and changes no mathematics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.planned_recipe import on_a_gpu, plan_of, planned_recipe
from trainwright.core.units import parse_bytes
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.planner.forecast.memory.table import usable_bytes
from trainwright.planner.plan.machine import this_machine
from trainwright.stages.plan.fit_memory import WAYS, within
from trainwright.testing.machine import fake_machine

SHAPE = ("model.layers=8", "model.width=512", "model.heads=8", "train.precision=fp32", "train.exec.compile=false")


@pytest.fixture
def planned(tmp_path):
    return lambda *overrides: plan_of(planned_recipe(tmp_path, *SHAPE, *overrides))


def by_hand(planned, limit):
    """Every way and micro batch, one plan each: the fastest that fits, and the least that any needs."""
    fitting, least = [], float("inf")
    for recompute, budget in WAYS:
        for size in (1, 2, 4, 8):
            how = (f"train.recompute={recompute}", f"train.recompute_budget={budget}")
            plan = planned(f"train.exec.micro_batch={size}", *how)
            need = plan.estimate.memory.total_bytes
            least = min(least, need)
            if need <= limit:
                fitting.append((plan.estimate.seconds.mid, recompute, budget, size))
    return min(fitting), least


def test_the_fastest_way_that_fits_is_taken(planned):
    whole = planned()
    need = whole.estimate.memory.total_bytes
    least = planned("train.exec.micro_batch=1", "train.recompute=full").estimate.memory.total_bytes
    limit = int(least + 0.3 * (need - least))
    plan = planned(f"train.exec.fit_memory={limit}")
    assert plan.estimate.fits
    assert plan.estimate.memory.total_bytes <= limit < need
    (seconds, *_), _ = by_hand(planned, limit)
    assert plan.estimate.seconds.mid <= seconds * 1.03, "equally fast micro batches count as one"
    (note,) = (each for each in plan.estimate.assumptions if each.key == "fit_memory")
    assert str(plan.parallel.micro_batch_sequences) in str(note.value)
    assert plan.workload.recompute in str(note.value)
    neutral = {"recompute": whole.workload.recompute, "recompute_budget": 0.0}
    assert replace(plan.workload, **neutral) == whole.workload, "the mathematics of the run"


def test_enough_memory_changes_nothing(planned):
    plan, free = planned("train.exec.fit_memory=1TiB"), planned()
    assert plan.workload == free.workload
    assert plan.parallel == free.parallel


def test_where_nothing_fits_the_plan_says_what_would(planned):
    plan = planned("train.exec.fit_memory=450MiB", "train.optimizer.moments=fp32")
    assert not plan.estimate.fits
    assert plan.estimate.memory_available_bytes <= parse_bytes("450MiB")
    assert plan.workload.recompute == "full"
    assert plan.rejected and not any(each.overrides == () for each in plan.rejected[1:])


def test_the_recipe_keeps_its_micro_batch_and_at_least_its_recomputation(planned):
    plan = planned("train.exec.fit_memory=1TiB", "train.exec.micro_batch=2", "train.recompute=selective")
    assert plan.parallel.micro_batch_sequences == 2
    assert plan.workload.recompute != "none"


def test_a_limit_is_kept_to_the_byte():
    here = replace(this_machine(fake_machine()), cluster=cluster("h100-sxm"))
    assert here.cluster.device.visible_bytes is None, "a board of which the printed size alone is known"
    limit = parse_bytes("60GiB")
    assert usable_bytes(within(here, limit).cluster.device) == pytest.approx(limit, abs=1)
    assert within(here, parse_bytes("1TiB")) is here


def test_a_budget_beside_it_is_refused(planned):
    with pytest.raises(Exception, match=r"exec\.fit_memory chooses the recompute_budget"):
        planned("train.exec.fit_memory=1GiB", "train.recompute=full", "train.recompute_budget=0.5")


@pytest.mark.parametrize("share", [0.95, 0.85, 0.6])
def test_what_kernels_do_not_run_with_is_not_chosen(tmp_path, share):
    flex = "train.exec.attention=flex"
    need = on_a_gpu(tmp_path, flex).estimate.memory.total_bytes
    plan = on_a_gpu(tmp_path, flex, f"train.exec.fit_memory={int(share * need)}")
    assert plan.workload.recompute in ("none", "full"), "flex is not recomputed selectively"
    assert plan.estimate.memory.total_bytes <= share * need
