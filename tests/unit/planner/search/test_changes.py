from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.pipeline.question_fields import read_fields
from trainwright.planner.forecast.host_link import UNUSUAL
from trainwright.planner.plan.cluster import plan_run, planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.ways import with_ways
from trainwright.planner.search.changes import changes as changes_of
from trainwright.planner.search.changes import larger
from trainwright.planner.search.fitting import Fitting, with_room
from trainwright.planner.search.layouts import best_layouts
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

STACK, MODEL = read_stack("default"), catalogue_model("llama3-8b")
STACK = replace(STACK, memory=replace(STACK.memory, update_copies=1.0))  # AdamW for each: just too much for PAIR
WORK = Workload(
    sequence_tokens=8192, batch_tokens=64 * 8192, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)
PAIR = catalogue_cluster("2xa100-sxm-80gb")


def changes(run, *, unit=None, **options):
    """The changes of a run, told by the layout that it has with room."""
    if unit is None:
        (step_s,) = Fitting().best(with_room(run), {}, frugal=options.get("frugal", False)).step_s
        unit = step_s * run.cluster.devices / run.workload.step_tokens
    return changes_of(run, unit=unit, **options)


@pytest.fixture(scope="module")
def every_change():
    return changes(RunSpec(model=MODEL, workload=WORK, cluster=PAIR, stack=STACK))


def named(every_change, name):
    (change,) = [each for each in every_change if each.name == name]
    return change


def test_changes_come_by_what_surely_fits_then_by_slowdown_and_all_fit(every_change):
    assert not best_layouts(RunSpec(model=MODEL, workload=WORK, cluster=PAIR, stack=STACK), count=1)[0].fits
    seldom = {each.name for each in every_change if each.name.startswith(("offload", "paged", "4 devices"))}
    order = [
        (each.trains_less, each.best.unsure, each.slowdown * (UNUSUAL if each.name in seldom else 1.0))
        for each in every_change
    ]
    assert order == sorted(order) and max(each.slowdown for each in every_change) < 10
    assert {True, False} == {less for less, *_ in order} == {unsure for _, unsure, _ in order}
    assert all(each.best.fits for each in every_change)
    assert {"8-bit optimizer", "LoRA", "QLoRA", "offload the optimizer's state"} <= {each.name for each in every_change}


def test_a_change_is_the_best_layout_of_the_changed_run(every_change):
    (best,) = best_layouts(
        RunSpec(model=MODEL, workload=replace(WORK, moments="int8"), cluster=PAIR, stack=STACK), count=1
    )
    assert named(every_change, "8-bit optimizer").best == best
    (best,) = best_layouts(RunSpec(model=MODEL, workload=WORK, cluster=PAIR, stack=STACK), count=1, offload="optimizer")
    assert named(every_change, "offload the optimizer's state").best == best


def test_slowdown_is_in_device_seconds_for_a_token(every_change):
    small, more = named(every_change, "8-bit optimizer"), named(every_change, "4 devices")
    assert more.devices == 4
    ratio = more.best.step_s * 4 / (small.best.step_s * 2)
    assert more.slowdown / small.slowdown == pytest.approx(ratio)


def test_adapters_are_marked(every_change):
    assert {each.name for each in every_change if each.trains_less} == {"LoRA", "QLoRA"}


def test_offload_needs_the_hosts_memory():
    alone = catalogue_cluster("rtx-4090")
    poor = replace(alone, node=replace(alone.node, host_memory_bytes=16 << 30))
    bare = replace(poor, node=replace(poor.node, nvme_bytes=None))
    rich = replace(alone, node=replace(alone.node, host_memory_bytes=1 << 40))
    work = replace(WORK, sequence_tokens=2048, batch_tokens=64 * 2048)
    offloads = [
        [
            each
            for each in changes(RunSpec(model=MODEL, workload=work, cluster=on, stack=STACK))
            if each.name.startswith("offload")
        ]
        for on in (bare, poor, rich)
    ]
    assert offloads[0] == []
    # Drives are offered where host memory is too little, and not where it is enough.
    assert offloads[1] and all("NVMe" in each.name and each.best.nvme_bytes for each in offloads[1])
    assert offloads[2] and not any("NVMe" in each.name or each.best.nvme_bytes for each in offloads[2])
    assert min(each.slowdown for each in offloads[1]) > min(each.slowdown for each in offloads[2])


def test_shared_memory_is_not_offloaded_to():
    names = {
        each.name
        for each in changes(
            RunSpec(
                model=MODEL, workload=replace(WORK, precision="fp16"), cluster=catalogue_cluster("m3-max"), stack=STACK
            )
        )
    }
    assert not any(name.startswith("offload") for name in names)


def test_more_devices_fill_a_node_before_there_are_more():
    sizes = [(each.nodes, each.node.devices) for each in larger(catalogue_cluster("2xh100-sxm"), 64)]
    assert sizes == [(1, 4), (1, 8), (2, 8), (4, 8), (8, 8)]
    assert [each.devices for each in larger(catalogue_cluster("3x8xh100-sxm"), 60)] == [48]


def test_two_changes_are_tried_where_one_is_not_enough():
    work = replace(WORK, sequence_tokens=4096, batch_tokens=64 * 4096)
    alone = catalogue_cluster("a100-sxm-40gb")
    alone = replace(alone, node=replace(alone.node, host_memory_bytes=1 << 40))
    tight = replace(alone, node=replace(alone.node, device=replace(alone.device, memory_bytes=8 * 10**9)))
    ways = changes(RunSpec(model=MODEL, workload=work, cluster=tight, stack=STACK), most_devices=1)
    names = [each.name for each in ways]
    # Of shorter sequences the longest that fit.
    assert names == [
        "offload weights, gradients and the optimizer's state, fused loss",
        "offload weights, gradients and the optimizer's state, sequences of 2,048 tokens",
    ]
    assert (
        changes(RunSpec(model=MODEL, workload=work, cluster=tight, stack=STACK), most_devices=8)[0].name == "8 devices"
    )


TIGHT = {
    "one device": {"on": "rtx-4090"},
    "replicas": {"on": "8xrtx-4090", "layout": {"dp_replicate": 8}},
    "adapters on replicas": {
        "model": "llama3-70b",
        "on": "8xrtx-4090",
        "method": "qlora",
        "layout": {"dp_replicate": 8},
        "recompute": "none",
        "sequence_tokens": 8192,
    },
    "offloaded already": {"model": "llama3-70b", "on": "8xrtx-4090", "layout": {"offload": "all"}},
    "nothing recomputed": {"on": "4xrtx-4090", "recompute": "none"},
    "software without QLoRA": {"model": "llama3-70b", "on": "h100-sxm", "stack": "megatron-core"},
    "software of one device": {"model": "qwen3-14b", "on": "rtx-4090", "method": "lora", "stack": "unsloth"},
    "adapters beside every expert": {
        "model": "qwen3-30b-a3b",
        "on": "rtx-4090",
        "method": "qlora",
        "stack": "unsloth",
        "targets": ("all-linear", "experts"),
    },
    "paged moments": {"model": "llama3-70b", "on": "rtx-4090", "paged_moments": True},
}


def test_adapters_beside_whole_weights_are_offered_quantised_ones():
    def named(**fields):
        run = scenario_of(Question(model=catalogue_model("qwen3-14b"), on="rtx-4090", **fields)).run
        return {each.name: each for each in changes(run, frugal=True)}

    (quantised,) = [each for name, each in named(method="lora", stack="unsloth").items() if name == "QLoRA"]
    assert not quantised.trains_less and quantised.fields == {"method": "qlora"}
    assert named(method="full")["QLoRA"].trains_less


def test_adapters_that_do_not_fit_are_offered_fewer_targets_and_a_smaller_rank():
    fields = TIGHT["adapters beside every expert"]
    asked = Question(**{**fields, "model": catalogue_model(fields["model"])})
    every = changes(scenario_of(asked).run, frugal=True)
    found = {each.name: each.fields for each in every}
    assert found["adapters beside attention alone"] == {"targets": "attention"}
    ranks = [fields["rank"] for fields in found.values() if "rank" in fields]
    assert ranks == ["8"]  # the largest that fits is enough
    assert not any(each.trains_less for each in every)
    # Beside attention alone there is nothing less to stand beside.
    alone = replace(asked, targets=("attention",), on="rtx-3060")
    fewer = [each.fields for each in changes(scenario_of(alone).run, frugal=True)]
    assert not any("targets" in fields for fields in fewer)


@pytest.mark.parametrize("fields", TIGHT.values(), ids=TIGHT)
def test_what_a_change_asks_for_is_a_plan_that_fits(fields):
    asked = Question(**{**fields, "model": catalogue_model(fields.get("model", "llama3-8b"))})
    made = with_ways(planned(scenario_of(asked)))
    assert not made.plan.estimate.fits and made.changes
    assert [each.name for each in made.changes] == [each.name for each in made.plan.rejected]
    for change in made.changes:
        changed = dict(change.fields)
        question = replace(asked, on=changed.pop("on", asked.on), **read_fields({"method": asked.method, **changed}))
        plan = plan_run(scenario_of(question))
        assert plan.estimate.fits, change.name
        assert plan.workload.recompute == change.best.recompute or asked.recompute is None, change.name


@pytest.mark.parametrize(
    ("on", "method", "first"), [("rtx-4090", "full", "QLoRA"), ("rtx-4060-ti-16gb", "lora", "QLoRA")]
)
def test_what_is_offered_first_surely_fits(on, method, first):
    asked = Question(model=MODEL, on=on, **read_fields({"method": method}))
    made = with_ways(planned(scenario_of(asked)))
    assert made.plan.estimate.fit == "does not fit" and any(each.best.unsure for each in made.changes)
    assert made.changes[0].name == first
    plan = plan_run(scenario_of(replace(asked, **read_fields(dict(made.changes[0].fields)))))
    assert plan.estimate.fit == "fits"
    told = {each.name: each.reason for each in made.plan.rejected}
    assert all(("; uncertain" in told[each.name]) == each.best.unsure for each in made.changes)


UNSURE = {
    "adapters": {"on": "rtx-4090", "method": "lora"},
    "a model from scratch": {"model": "llama2-7b", "on": "2xh100-sxm", "tokens": 10**10},
    "with a layout": {"model": "llama2-7b", "on": "2xh100-sxm", "tokens": 10**10, "layout": {"micro_batch": 1}},
}


@pytest.mark.parametrize("fields", UNSURE.values(), ids=UNSURE)
def test_what_may_not_fit_is_offered_a_change_after_which_it_surely_does(fields):
    read = {name: value for name, value in fields.items() if name == "method"}
    others = {name: value for name, value in fields.items() if name != "method"}
    model = catalogue_model(fields.get("model", "llama3-8b"))
    asked = Question(**{**others, "model": model, **read_fields(read)})
    made = with_ways(planned(scenario_of(asked)))
    assert made.plan.estimate.fit == "uncertain"
    (change,) = made.changes
    changed = dict(change.fields)
    question = replace(asked, on=changed.pop("on", asked.on), **read_fields(changed))
    assert plan_run(scenario_of(question)).estimate.fit == "fits"


def test_software_is_asked_for_nothing_that_it_does_not_run():
    """The file of one stack has no method qlora, that of the other divides nothing."""
    one = Question(model=catalogue_model("llama3-70b"), on="h100-sxm")
    names = [
        {each.name for each in changes(scenario_of(replace(one, stack=name)).run)}
        for name in ("default", "megatron-core")
    ]
    assert "QLoRA" in names[0] and "QLoRA" not in names[1] and "16 devices" in names[1]
    alone = replace(one, on="rtx-4090", method="lora", stack="unsloth")
    assert all(each.devices == 1 for each in changes(scenario_of(alone).run))


def test_moments_that_leave_by_pages_are_not_offloaded_too():
    asked = Question(model=catalogue_model("llama3-8b"), on="rtx-4090", paged_moments=True)
    offloads = {each.fields.get("layout") for each in changes(scenario_of(asked).run)}
    assert not offloads & {"offload=optimizer", "offload=all"}


def test_a_whole_8b_model_on_a_24_gb_card_is_tuned_as_torchtune_does():
    """8B_full_single_device.yaml: all in bf16, PagedAdamW8bit, the optimizer in the backward pass, few sequences."""
    on = Question(model=catalogue_model("llama3-8b"), on="rtx-4090", method="full")
    every = changes(scenario_of(on).run)
    first = next(each for each in every if not each.trains_less and each.devices == 1)
    assert first.fields.items() >= {"states": "pure", "moments": "int8"}.items()
    assert first.fields["paged_moments"] is True and first.fields["update_in_backward"] is True
    plan = plan_run(scenario_of(replace(on, **read_fields(first.fields))))
    assert plan.estimate.fits and plan.workload.batch_tokens == plan.parallel.micro_batch_sequences * 2048
    assert [each.trains_less for each in every].index(True) > 0
    # Where the optimizer is paged already, the rest of it is offered.
    named = replace(on, stack="torchtune", batch_tokens=16 * 2048)
    rest = next(
        each for each in changes(scenario_of(named).run) if each.name.startswith("updates in the backward pass")
    )
    assert rest.fields["update_in_backward"] is True and not rest.fields.keys() & {"paged_moments", "moments"}
    plan = plan_run(scenario_of(replace(named, **read_fields(rest.fields))))
    assert plan.estimate.fits and plan.workload.paged_moments and plan.workload.moments == "int8"


def test_adapters_that_do_not_fit_leave_frozen_weights_or_activations_on_the_host():
    adapters = Question(model=catalogue_model("llama3-8b"), on="t4", method="lora", precision="fp16", packing="on")
    asked = scenario_of(adapters).run
    host = replace(asked.cluster, node=replace(asked.cluster.node, host_memory_bytes=1 << 37))
    every = changes(replace(asked, cluster=host), most_devices=1)
    offloaded = next(each for each in every if each.name == "offload the frozen weights")
    assert offloaded.fields == {"layout": "offload=frozen"}
    # What people do comes first, being about as fast.
    assert every[0].name == "QLoRA" and every[0].slowdown < UNUSUAL * offloaded.slowdown
    assert not any(each.fields.get("paged_moments") for each in every)


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-30b-a3b"])
def test_no_offload_that_nobody_measured_is_called_faster_than_the_run_without_it(name):
    asked = Question(model=catalogue_model(name), on="rtx-4090", method="qlora", layout={"micro_batch": 1})
    scenario = scenario_of(asked)
    every = changes(scenario.run, frugal=True, unit=1e9)
    moved = [each for each in every if each.name.startswith("offload ")]
    # Beside a run as slow as that everything is faster: offloads are ranked by the same layout without them.
    assert moved and all(each.counted >= 1.0 > each.slowdown for each in moved)


def test_smaller_steps_are_offered_where_a_step_is_one_micro_batch():
    asked = {"method": "full", "stack": "torchtune", "states": "pure", "moments": "int8", "paged_moments": True}
    question = Question(model=MODEL, on="rtx-4090", batch_tokens=16 * 2048, **asked)
    scenario = scenario_of(question)
    whole = changes(replace(scenario.run, workload=replace(scenario.run.workload, update_in_backward=True)))
    first = next(each for each in whole if each.name.startswith("steps of "))
    tokens = int(first.fields["batch_tokens"])
    assert first.name == f"steps of {tokens:,} tokens" and first.best.parallel.micro_batch_sequences == tokens // 2048
    # It is the largest: twice as much does not fit.
    for batch, fits in ((tokens, True), (2 * tokens, False)):
        run = scenario_of(replace(question, update_in_backward=True, batch_tokens=batch)).run
        assert best_layouts(run, count=1)[0].fits == fits
    assert not [each for each in changes(scenario.run) if each.name.startswith("steps of ")]
