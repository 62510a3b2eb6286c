"""Changes get smaller until none is left, each slower than what it takes the place of."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from trainwright.artifact.reading import read_plan
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.planner.counts.layouts import RECOMPUTES, Layouts
from trainwright.spec.plan import Plan
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import DEFAULT_KERNELS, Adapter, KernelChoice, ParallelPlan
from trainwright.stages.train.faults import changes
from trainwright.stages.train.faults.changes import _recomputes, cheapest_change
from trainwright.stages.train.faults.memory import with_change

KERNELS = KernelChoice(update="loop", loss_chunk_tokens=512)


@pytest.fixture
def recipe(make_recipe):
    return make_recipe(batch_tokens=256, duration="4 steps", exec_micro_batch=8)


def plan_of(inputs) -> Plan:
    return read_plan(inputs["plan"].file("plan.json"))


def test_changes_end_where_nothing_smaller_is_left(recipe, inputs_for) -> None:
    plan, seen = plan_of(inputs_for(recipe)), []
    while (change := cheapest_change(plan, DEFAULT_KERNELS)) is not None:
        seen.append((change.micro_batch, change.recompute))
        assert change.slowdown >= 1
        recipe, plan = with_change(recipe, plan, change)
    assert seen
    assert len(seen) == len(set(seen)) < 10
    assert plan.parallel.micro_batch_sequences == 1


def test_a_device_without_rates_has_no_change(recipe, inputs_for) -> None:
    plan = plan_of(inputs_for(recipe))
    device = replace(plan.cluster.device, flops_per_s={})
    node = replace(plan.cluster.node, device=device)
    assert cheapest_change(replace(plan, cluster=replace(plan.cluster, node=node)), DEFAULT_KERNELS) is None


def test_batch_norms_have_no_smaller_pass(recipe, inputs_for) -> None:
    plan = replace(plan_of(inputs_for(recipe)), model=catalogue_model("resnet-50"))
    assert cheapest_change(plan, DEFAULT_KERNELS) is None


def test_a_change_is_one_that_the_trainer_executes(recipe, inputs_for) -> None:
    plan = plan_of(inputs_for(recipe))
    assert _recomputes(plan, DEFAULT_KERNELS) == ("none", "selective", "full")
    float8 = replace(plan, workload=replace(plan.workload, precision="fp8"))
    assert _recomputes(float8, DEFAULT_KERNELS) == ("none", "full"), "float8 and selective exclude each other"
    assert _recomputes(plan, replace(DEFAULT_KERNELS, attention="flex")) == ("none", "full"), "and so does flex"
    offloaded = replace(plan, workload=replace(plan.workload, activation_offload=True))
    assert _recomputes(offloaded, DEFAULT_KERNELS) == ("none", "full"), "what it keeps is not moved to the host"
    adapter = Adapter(rank=4, frozen="nf4")
    packed = replace(plan, workload=replace(plan.workload, adapter=adapter))
    assert _recomputes(packed, DEFAULT_KERNELS) == ("none", "full"), "products with nf4 are none that it keeps"


def asked_about(plan: Plan, monkeypatch) -> list[tuple[RunSpec, Layouts]]:
    """What the planner is asked about to find the change of a plan."""
    asked, seen = [], changes.forecast

    def heard(run, layouts, source):
        asked.append((run, layouts))
        return seen(run, layouts, source)

    with monkeypatch.context() as patched:
        patched.setattr(changes, "forecast", heard)
        assert cheapest_change(plan, KERNELS) is not None
    return asked


@pytest.mark.parametrize(
    "parallel",
    [
        ParallelPlan(dp_shard=8, zero_stage=2, offload="optimizer", compile=True),
        ParallelPlan(dp_shard=2, tp=2, cp=2, sequence_parallel=False, context="ulysses"),
        ParallelPlan(dp_shard=4, pp=2, schedule="interleaved", virtual_stages=2, zero_stage=1),
        ParallelPlan(dp_replicate=2, dp_shard=4, shares=(3, 1)),
    ],
)
def test_the_rest_of_the_plan_stays(parallel, recipe, inputs_for, monkeypatch) -> None:
    plan = replace(plan_of(inputs_for(recipe)), model=catalogue_model("llama3-8b"), cluster=cluster("8xa100-sxm-80gb"))
    work = replace(plan.workload, sequence_tokens=4096, batch_tokens=64 * 4096, precision="bf16")
    plan = replace(plan, workload=work, parallel=replace(parallel, micro_batch_sequences=6))
    sizes = set()
    for run, layouts in asked_about(plan, monkeypatch):
        assert run.kernels == KERNELS
        own = Layouts.of([plan.parallel], ["none"], plan.workload)
        for field in fields(Layouts):
            if field.name not in ("micro_batch", "recompute"):
                assert getattr(layouts, field.name) == getattr(own, field.name)
        sizes.add(int(layouts.micro_batch[0]))
    assert sizes == {6, 3, 2, 1}


def test_saved_activations_that_go_to_the_host_are_not_kept_by_choice(recipe, inputs_for, monkeypatch) -> None:
    plan = replace(plan_of(inputs_for(recipe)), cluster=cluster("1xa100-sxm-80gb"))
    for moves, recomputes in ((False, {"none", "selective", "full"}), (True, {"none", "full"})):
        moving = replace(plan, workload=replace(plan.workload, precision="bf16", activation_offload=moves))
        asked = asked_about(moving, monkeypatch)
        assert {RECOMPUTES[int(layouts.recompute[0])] for _, layouts in asked} == recomputes
