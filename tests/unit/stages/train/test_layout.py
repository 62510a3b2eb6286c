"""Each field of a parallel plan is executed, or refused by its name with what to set."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import get_args

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.stacks import read_stack, stack_names
from trainwright.model.experts.refusals import refusals as of_experts
from trainwright.planner.plan.cluster import plan_run
from trainwright.planner.plan.layout import parse_layout
from trainwright.planner.plan.machine import this_machine
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.spec.families.family import FAMILY
from trainwright.spec.sections.updates.optimizer import AdamWAloneSection
from trainwright.spec.stack import Axis
from trainwright.spec.workload import KernelChoice, Offload, ParallelPlan
from trainwright.stages.train.layout import check_executable, refusals
from trainwright.stages.train.stage import settings_of
from trainwright.testing.machine import fake_machine

EXECUTED = frozenset(
    ("dp_replicate", "dp_shard", "zero_stage", "tp", "sequence_parallel", "pp", "schedule", "virtual_stages", "cp")
) | {"ep", "context", "shares", "micro_batch_sequences", "compile", "threads", "deterministic"}
"""Fields that the trainer executes whatever they are."""


def test_every_field_is_executed_but_what_offload_says_is_refused_by_name() -> None:
    assert {*EXECUTED, "offload"} == {field.name for field in fields(ParallelPlan)}
    for offload in get_args(Offload):
        told = refusals(replace(ParallelPlan(), offload=offload))
        assert bool(told) == (offload not in ("none", "optimizer"))
        assert all(each.startswith(f"offload={offload}: ") and each.endswith("; set offload=none") for each in told)


def test_a_plan_in_a_precision_that_its_device_lacks_is_refused(tmp_path) -> None:
    recipe = planned_recipe(tmp_path, "train.precision=fp32")
    plan = plan_of(recipe)
    check_executable(plan, recipe)
    with pytest.raises(RecipeError, match=r"the plan's device has no tf32 \(seen Ideal CPU"):
        check_executable(replace(plan, workload=replace(plan.workload, precision="tf32")), recipe)


@pytest.mark.parametrize(
    ("layout", "recompute", "line"),
    [
        ({"tp": 2}, "none", "tp=2: .*; set tp=1"),
        ({"pp": 2, "schedule": "zero_bubble"}, "none", "schedule=zero_bubble: float8 .*; set schedule=1f1b"),
        ({}, "selective", "recompute=selective: .*; set recompute=none or full"),
    ],
)
def test_what_float8_does_not_run_with_is_refused_by_name(tmp_path, layout, recompute, line) -> None:
    recipe = planned_recipe(tmp_path, "train.precision=bf16")
    plan = plan_of(recipe)
    node = plan.cluster.node
    fast = replace(node, device=replace(node.device, flops_per_s={**node.device.flops_per_s, "fp8": 1e12}))
    plan = replace(plan, cluster=replace(plan.cluster, node=fast))
    work = replace(plan.workload, precision="fp8")
    check_executable(replace(plan, workload=work), recipe)
    refused = replace(plan, workload=replace(work, recompute=recompute), parallel=ParallelPlan(**layout))
    with pytest.raises(RecipeError, match=line):
        check_executable(refused, recipe)


PIPELINES = [
    (ParallelPlan(pp=2, virtual_stages=2), "virtual_stages=2: schedule=1f1b .*set schedule=interleaved"),
    (ParallelPlan(pp=2, dp_shard=2, zero_stage=2), "zero_stage=2: .*set zero_stage=1"),
    (
        ParallelPlan(pp=2, schedule="zero_bubble", compile=True),
        "compile=True: schedule=zero_bubble .*set compile=False",
    ),
    (ParallelPlan(pp=3, schedule="dualpipe"), "schedule=dualpipe: 6 stages for 4 blocks; set pp=2"),
]


@pytest.mark.parametrize(("parallel", "reason"), PIPELINES)
def test_what_a_pipeline_does_not_run_is_refused(parallel, reason) -> None:
    (line,) = refusals(parallel, blocks=4)
    assert re.match(reason, line)


@pytest.mark.parametrize("schedule", ["zero_bubble", "dualpipe"])
def test_a_split_backward_pass_is_not_recomputed(schedule) -> None:
    (line,) = refusals(ParallelPlan(pp=2, schedule=schedule), recompute="full")
    assert line.startswith(f"schedule={schedule}: ")
    assert line.endswith("set recompute=none or schedule=1f1b")


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe"])
def test_every_schedule_is_executed(schedule) -> None:
    virtual = 2 if schedule == "interleaved" else 1
    assert refusals(ParallelPlan(pp=2, schedule=schedule, virtual_stages=virtual), blocks=4) == ()
    assert refusals(ParallelPlan(pp=2, compile=True), recompute="full") == ()


@pytest.mark.parametrize("context", ["gather", "ulysses"])
def test_sequences_are_divided_where_the_task_can(context) -> None:
    parallel = ParallelPlan(cp=2, pp=2, dp_replicate=2, context=context, shares=(3, 1))
    assert refusals(parallel, blocks=4) == ()
    assert refusals(parallel, blocks=4, divides=False) == ("cp=2: the task reads whole sequences; set cp=1",)


OWN = replace(FAMILY.load("llama"), network="contract.additions.families:Own")


def test_matrices_and_sequences_are_shared_of_our_own_network_alone() -> None:
    parallel, name = ParallelPlan(tp=2, pp=2, cp=2), f"{__name__}:OWN"
    assert refusals(parallel, family="llama") == refusals(parallel, family="mistral") == ()
    own = refusals(parallel, family=name)
    assert [line.split(":")[0] for line in own] == ["tp=2", "pp=2", "cp=2"]
    assert all("a network of its own" in line for line in own)
    assert refusals(ParallelPlan(dp_shard=2), family=name) == ()


CHECKED = [
    ({"recompute": "full"}, ParallelPlan(pp=2, schedule="zero_bubble"), "set recompute=none or schedule=1f1b"),
    (
        {"optimizer": {"moments": "int8"}},
        ParallelPlan(tp=2),
        "tp=2: moments in int8 have one scale .*set tp=1 or train.optimizer.moments=bf16",
    ),
    ({}, ParallelPlan(pp=3, schedule="dualpipe"), "6 stages for 2 blocks; set pp=1"),
]


@pytest.mark.parametrize(("keys", "parallel", "reason"), CHECKED)
def test_what_recipe_and_plan_say_is_checked_whole(make_recipe, keys, parallel, reason) -> None:
    recipe = make_recipe(**keys)
    with pytest.raises(RecipeError, match=f"cannot execute this plan .*{reason}"):
        check_executable(replace(plan_of(recipe), parallel=parallel), recipe)


def test_a_network_of_its_own_and_whole_sequences_are_checked(make_recipe, monkeypatch) -> None:
    recipe = make_recipe()
    plan = replace(plan_of(recipe), parallel=ParallelPlan(cp=2))
    check_executable(plan, recipe)
    with pytest.raises(RecipeError, match="cp=2: .* has a network of its own"):
        check_executable(replace(plan, model=replace(plan.model, family=f"{__name__}:OWN")), recipe)
    monkeypatch.setattr(type(recipe.task), "kind", replace(recipe.task.kind, divides=False))
    with pytest.raises(RecipeError, match="cp=2: the task reads whole sequences; set cp=1"):
        check_executable(plan, recipe)


def test_moments_in_eight_bits_are_of_whole_rows(make_recipe) -> None:
    (line,) = refusals(ParallelPlan(tp=2, dp_shard=2), optimizer=AdamWAloneSection(moments="int8"))
    assert line.startswith("tp=2: moments in int8 have one scale for 256 numbers of a whole row; ")
    assert line.endswith("set tp=1 or train.optimizer.moments=bf16")
    assert (
        refusals(ParallelPlan(tp=2), optimizer=AdamWAloneSection(moments="bf16"))
        == refusals(ParallelPlan(dp_shard=2), optimizer=AdamWAloneSection(moments="int8"))
        == ()
    )
    recipe = make_recipe(optimizer={"name": "adamw", "moments": "int8"})
    with pytest.raises(RecipeError, match=r"tp=2: moments in int8"):
        check_executable(replace(plan_of(recipe), parallel=ParallelPlan(tp=2)), recipe)


def test_what_is_executed_is_not_refused() -> None:
    assert refusals(ParallelPlan(micro_batch_sequences=4, compile=True, threads=3, deterministic=True)) == ()


def test_the_plan_is_executed_whatever_the_recipe_asked_it_for(make_recipe, inputs_for, train, tmp_path) -> None:
    recipe = make_recipe(
        exec_micro_batch=64, exec_threads=2, exec_compile=True, exec_device="cuda", exec_deterministic=True
    )
    parallel = ParallelPlan(micro_batch_sequences=4, compile=False, threads=1, deterministic=False)
    inputs = inputs_for(recipe, parallel=parallel)
    done = train(recipe, inputs, tmp_path / "out").execution
    assert (done["micro_batch"], done["threads"], done["compiled"], done["device"]) == (4, 1, False, "cpu")
    assert done["deterministic"] is False


@pytest.mark.parametrize(("wanted", "executed"), [("auto", True), (True, True), (False, False)])
def test_determinism_that_a_plan_leaves_open_is_the_recipes(make_recipe, dataset, wanted, executed) -> None:
    recipe = make_recipe(exec_deterministic=wanted)
    plan = plan_of(recipe)
    asked = settings_of(recipe, plan, TokenDataset.open(dataset.path))
    left_open = settings_of(
        recipe,
        replace(plan, parallel=replace(plan.parallel, deterministic=None)),
        TokenDataset.open(dataset.path),
    )
    assert asked.deterministic is left_open.deterministic is executed


def runs(question: Question) -> bool:
    """What the stack's own file says of GPT-2, of CUDA, of the ZeRO stage and of the pipeline's schedule."""
    said, schedules = read_stack(question.stack).runs, read_stack(question.stack).schedules
    piped = not said.axes or any("pp" in axes for axes in said.axes.values())
    known = not said.families or "gpt2" in said.families
    return (
        known
        and (not said.devices or "cuda" in said.devices)
        and question.layout.get("zero_stage", said.zero_stages[0]) in said.zero_stages
        and ("schedule" not in question.layout or (piped and question.layout["schedule"] in schedules))
    )


@pytest.mark.parametrize("stack", stack_names())
@pytest.mark.parametrize("layout", ["auto", "zero_stage=3", "sequence_parallel=false", "schedule=gpipe"])
def test_a_plan_of_one_device_can_be_executed_where_its_stack_runs_it(stack, layout) -> None:
    question = Question(model=model("gpt2"), on="h100-sxm", stack=stack, layout=parse_layout(layout))
    if not runs(question):
        with pytest.raises(RecipeError, match=f"{stack} does not run"):
            scenario_of(question)
        return
    asked = scenario_of(question)
    planned = plan_run(asked).parallel
    assert refusals(planned) == ()
    assert planned.zero_stage == 0


def test_both_doors_to_a_plan_of_this_machine_give_a_layout_that_is_executed(tmp_path, make_recipe) -> None:
    recipe = planned_recipe(tmp_path)
    stage = plan_of(recipe).parallel
    question = Question(
        model=recipe.model_spec(vocabulary=1024),
        on="here",
        here=this_machine(fake_machine()),
        workload=plan_of(recipe).workload,
        stack="trainwright",
    )
    cluster = plan_run(scenario_of(question)).parallel
    assert refusals(stage) == refusals(cluster) == ()
    assert cluster.zero_stage == stage.zero_stage == ParallelPlan().zero_stage == 0


def test_a_plan_for_another_kind_of_device_is_refused(make_recipe, dataset) -> None:
    recipe = make_recipe()
    plan = plan_of(recipe)
    node = replace(plan.cluster.node, device=replace(plan.cluster.device, kind="hpu"))
    plan = replace(plan, cluster=replace(plan.cluster, node=node))
    with pytest.raises(RecipeError, match=r"cannot execute this plan \(seen hpu, expected one of cpu, cuda"):
        settings_of(recipe, plan, TokenDataset.open(dataset.path))


def test_a_plan_of_another_run_is_refused_by_what_differs(make_recipe, dataset) -> None:
    recipe = make_recipe()
    plan = plan_of(recipe)
    other = replace(plan, model=replace(plan.model, ffn_width=64), workload=replace(plan.workload, optimizer="muon"))
    with pytest.raises(RecipeError, match=r"of another run \(seen ffn_width=64 for \d+, optimizer=muon for adamw\)"):
        settings_of(recipe, other, TokenDataset.open(dataset.path))


def test_what_the_dataset_decides_may_differ_from_the_plan(make_recipe, dataset) -> None:
    plan = plan_of(make_recipe())
    plan = replace(plan, workload=replace(plan.workload, steps=5, validations=2, validation_tokens=9))
    assert plan.model.vocabulary != TokenDataset.open(dataset.path).vocabulary
    assert settings_of(make_recipe(), plan, TokenDataset.open(dataset.path)).steps == 8


def test_a_plan_for_several_devices_is_not_trained_on_one(make_recipe, inputs_for, train, tmp_path) -> None:
    recipe = make_recipe()
    inputs = inputs_for(recipe, parallel=ParallelPlan(pp=2, ep=2, zero_stage=2, dp_shard=2))
    with pytest.raises(RecipeError, match=r"cannot execute this plan .*zero_stage=2.*set zero_stage=1"):
        train(recipe, inputs, tmp_path / "out")
    assert not (tmp_path / "out" / "checkpoints").exists()


def test_a_plan_that_counts_on_another_optimizer_than_the_recipes_is_refused(make_recipe, dataset) -> None:
    name = "contract.additions.optimizers:momentum"
    recipe, plan = make_recipe(optimizer={"name": name}), plan_of(make_recipe())
    with pytest.raises(RecipeError, match=rf"of another run \(seen unmeasured={{}} for {{'optimizer': '{name}'}}"):
        settings_of(recipe, plan, TokenDataset.open(dataset.path))


def test_the_optimizer_may_be_on_the_host() -> None:
    assert refusals(ParallelPlan(offload="optimizer")) == ()


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("axis", ["tp", "pp", "cp"])
def test_encoders_have_whole_sequences_on_one_device(family, axis) -> None:
    (line,) = refusals(ParallelPlan(**{axis: 2}), family=family, blocks=4)
    assert line.startswith(f"{axis}=2: {family} has a network of its own") and line.endswith(f"set {axis}=1")
    assert not refusals(ParallelPlan(dp_shard=2, dp_replicate=2), family=family, blocks=4)


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_plans_divide_by_the_axes_that_the_trainer_executes(method) -> None:
    axes = read_stack("trainwright").runs.axes[method]
    for axis in get_args(Axis):
        size = {axis: 2, "dp_shard": 2} if axis == "ep" and method == "full" else {axis: 2}
        told = refusals(ParallelPlan(**size), adapts=method != "full", quantised=method == "qlora")
        assert bool(told) == (axis not in axes), (axis, told)


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"])
def test_plans_divide_models_with_parts_of_their_own_by_the_axes_that_the_trainer_executes(name) -> None:
    shape, runs = model(name), read_stack("trainwright").runs
    how = {"precision": "bf16", "optimizer": "adamw", "moments": None, "frozen": None, "kernels": KernelChoice()}
    part = "sinks" if shape.sinks else "latent" if shape.latent else "experts"
    for axis in ("tp", "cp", "pp", "dp_replicate", "dp_shard"):
        assert bool(of_experts(shape, ParallelPlan(**{axis: 2}), **how)) == (axis not in runs.of_models[part]), axis


def test_plans_divide_encoders_and_networks_of_images_by_the_axes_that_the_trainer_executes() -> None:
    runs = read_stack("trainwright").runs
    for name, part in (("bert-base", "encoder"), ("vit-b-16", "vision")):
        for axis in ("tp", "cp", "pp", "dp_replicate", "dp_shard"):
            told = refusals(ParallelPlan(**{axis: 2}), family=model(name).family)
            assert bool(told) == (axis not in runs.of_models[part]), (name, axis)
    for axis in ("tp", "cp", "pp", "dp_replicate", "dp_shard"):
        assert bool(refusals(ParallelPlan(**{axis: 2}), precision="fp8")) == (axis not in runs.of_models["fp8"]), axis
    assert runs.of_models["convolutions"] == (), "a batch norm sees its whole batch on one process"
