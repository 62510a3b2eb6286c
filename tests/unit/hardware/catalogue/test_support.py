from dataclasses import replace

import pytest

from fixtures.questions import scenario
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import offered, read_stack, stack_names
from trainwright.hardware.catalogue.support import AXES, check, lacking_axes, method_of
from trainwright.planner.counts.layouts import OFFLOADS, FixedLayout
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.layout import choose
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.ways import with_ways
from trainwright.planner.search.ranking import Goals
from trainwright.planner.search.recommend import recommend
from trainwright.spec.model import PLANNED_FAMILIES
from trainwright.spec.workload import Adapter


@pytest.mark.parametrize("name", stack_names())
def test_every_file_says_what_its_software_runs(name):
    runs = read_stack(name).runs
    if name not in ("default", "default-parallel", "trainwright"):
        assert runs.source and (runs.axes or runs.devices)
    assert set(runs.families) <= set(PLANNED_FAMILIES)
    assert set(runs.axes) <= {"full", "lora", "qlora"}
    assert {axis for axes in runs.axes.values() for axis in axes} <= set(AXES)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"stack": "hf-trainer", "method": "qlora", "layout": {"tp": 8}},
            r"hf-trainer does not run this layout \(seen tp=8 with qlora, expected dp_replicate, dp_shard, cp\)",
        ),
        (
            {"stack": "llm-c"},
            r"this family of models \(seen llama, expected one of gpt2\); software that does: axolotl, .* more",
        ),
        ({"stack": "megatron-core", "method": "lora"}, r"this method \(seen lora, expected one of full\).*hf-trainer"),
        ({"stack": "neuronx"}, r"devices of kind cuda \(seen h100-sxm \(cuda\), expected one of neuron\)"),
        ({"stack": "torchtitan", "on": "8xtpu-v5p"}, r"seen tpu-v5p \(tpu\).*software that does: .*maxtext"),
        (
            {"stack": "litgpt", "method": "qlora"},
            r"on several devices \(seen 8 devices with qlora, expected one dev",
        ),
        (
            {"stack": "unsloth", "method": "qlora", "on": "rtx-4090", "layout": {"offload": "frozen"}},
            r"unsloth does not run this offload \(seen offload=frozen, expected offload=none.*does: axolotl, hf",
        ),
        (
            {"stack": "torchtune", "method": "lora", "layout": {"offload": "optimizer"}},
            r"torchtune does not run this offload \(seen offload=optimizer, expected all or none\)",
        ),
        (
            {"stack": "llm-c", "model": model("gpt2"), "layout": {"zero_stage": 3}},
            r"this ZeRO stage \(seen zero_stage=3, expected one of 0, 1\)",
        ),
        (
            {"stack": "deepspeed", "layout": {"zero_stage": 3, "pp": 2}},
            r"together \(seen zero_stage=3, pp=2, expected zero_stage 0 or 1 with pp=2\); software.*megatron",
        ),
        (
            {"stack": "deepspeed", "layout": {"offload": "all", "pp": 2}},
            r"seen offload=all, pp=2, expected zero_stage 3 with offload=all, 0 or 1 with pp=2\); no software",
        ),
        (
            {"stack": "deepspeed", "layout": {"pp": 2, "schedule": "zero_bubble"}},
            r"this pipeline schedule \(seen schedule=zero_bubble, expected schedule=1f1b\); software.*torchtitan",
        ),
        (
            {"stack": "hf-trainer", "layout": {"schedule": "dualpipe"}},
            r"pipelines with full \(seen schedule=dualpipe, expected no schedule\); software that does: hai-llm$",
        ),
        (
            {"stack": "deepspeed", "layout": {"pp": 2, "virtual_stages": 4}},
            r"this pipeline schedule \(seen virtual_stages=4, expected schedule=1f1b\); software that does: .*megatron",
        ),
    ],
)
def test_what_software_does_not_run_is_refused_in_one_line(asked, message):
    with pytest.raises(RecipeError, match=message) as error:
        scenario(**asked)
    assert "\n" not in str(error.value) and "-ci" not in str(error.value)


@pytest.mark.parametrize("name", stack_names())
def test_every_offload_of_a_file_is_one_and_has_its_source(name):
    offloads = read_stack(name).runs.offloads
    assert offloads is None or (set(offloads) <= set(OFFLOADS) - {"none"} and all(offloads.values()))


def test_what_would_make_it_fit_is_no_offload_that_the_software_lacks():
    def moved(stack):
        made = with_ways(planned(scenario(stack=stack, on="h100-sxm", model=model("llama3-70b"), method="lora")))
        return [each.name for each in made.changes if each.best.parallel.offload != "none"]

    assert moved("hf-peft") and not moved("unsloth") and not moved("litgpt")


def test_where_no_software_runs_it_the_error_says_so():
    with pytest.raises(RecipeError, match="no software of the catalogue does"):
        scenario(stack="hf-trainer", method="qlora", layout={"pp": 8})


@pytest.mark.parametrize(
    "asked",
    [
        {"stack": "hf-trainer", "layout": {"tp": 8}},
        {"stack": "hf-trainer", "method": "qlora", "layout": {"tp": 1}},
        {"stack": "litgpt", "method": "qlora", "on": "h100-sxm"},
        {"stack": "maxtext", "on": "8xtpu-v5p"},
        {"stack": "llm-c", "model": replace(model("llama3-8b"), family="transformer")},
        {"method": "full", "layout": {"tp": 8}},
        {"method": "full", "layout": {"pp": 8}},
        {"stack": "deepspeed", "on": "h100-sxm", "layout": {"offload": "all", "zero_stage": 0}},
        {"stack": "deepspeed", "layout": {"offload": "optimizer", "pp": 8}},
    ],
)
def test_what_it_runs_is_not(asked):
    assert scenario(**asked).run.stack


@pytest.mark.parametrize("name", stack_names())
def test_stages_that_a_file_limits_are_of_its_own_parts(name):
    runs = read_stack(name).runs
    assert set(runs.stages_with) <= {*AXES, *OFFLOADS} - {"none"}
    assert {axis for axis in AXES if axis in runs.stages_with} <= set(runs.axes["full"] if runs.axes else AXES)
    assert all(stages and set(stages) <= set(runs.zero_stages) for stages in runs.stages_with.values())


@pytest.mark.parametrize("stack", ["deepspeed", "hf-deepspeed", "trl-peft"])
def test_weights_leave_the_device_where_ranks_share_them_alone(stack):
    """DeepSpeed's offload_param is ZeRO-3's, which its pipelines refuse; what is asked for of it is refused too."""
    asked = {"stack": stack, "method": "full", "on": "4xrtx-4090"}
    plan = choose(scenario(**asked, layout={"offload": "all"})).parallel
    assert (plan.zero_stage, plan.pp, plan.dp_shard > 1) == (3, 1, True)
    with pytest.raises(RecipeError, match=r"does not share states so .* zero_stage 3 with offload=all"):
        choose(scenario(**asked, layout={"offload": "all", "dp_replicate": 4}))


@pytest.mark.parametrize("stack", ["trl-peft", "axolotl", "hf-trainer", "hf-trainer-fused", "hf-deepspeed"])
def test_software_for_tuning_divides_tensors_where_its_user_says_so(stack):
    asked = {"stack": stack, "method": "full", "on": "8xa100-sxm-80gb"}
    plan = choose(scenario(**asked)).parallel
    assert (plan.dp_shard, plan.tp, plan.pp) == (8, 1, 1)
    assert choose(scenario(**asked, layout={"tp": 4})).parallel.tp == 4


def test_what_data_parallelism_does_not_fit_is_divided_otherwise_with_a_word():
    """One sequence a step cannot be divided over eight devices, whatever memory there is."""
    made = planned(scenario(stack="hf-trainer", method="full", on="8xa100-sxm-80gb", batch_tokens=2048, packing="on"))
    assert made.plan.parallel.tp * made.plan.parallel.cp == 8
    names = {each.name for each in made.plan.estimate.assumptions}
    assert ("division of the model" in names) == (made.plan.parallel.tp > 1)


def test_pipelines_have_the_schedules_of_their_software():
    plan = choose(scenario(stack="deepspeed", method="full", on="4xrtx-4090", layout={"pp": 4})).parallel
    assert (plan.schedule, plan.virtual_stages) == ("1f1b", 1) and plan.zero_stage < 2


def test_a_layout_that_is_chosen_uses_only_what_the_software_has():
    """Of the same pretraining of 405B parameters, other axes than data are chosen only where there are some."""
    asked = {"model": model("llama3.1-405b"), "on": "256x8xh100-sxm", "tokens": 10**11, "batch_tokens": 1 << 24}
    free = choose(scenario(stack="megatron-core", **asked)).parallel
    assert free.tp * free.pp * free.cp > 1
    sharded = choose(scenario(stack="fsdp1-eager", **asked)).parallel
    assert (sharded.tp, sharded.pp, sharded.cp) == (1, 1, 1)
    assert choose(scenario(stack="llm-c", model=model("gpt2"))).parallel.zero_stage in (0, 1)


def test_methods_are_told_by_how_frozen_weights_are_kept():
    whole = scenario().run.workload
    kept = {"bf16": "lora", "fp32": "lora", "nf4": "qlora", "int8": "qlora", "int4": "qlora"}
    assert method_of(whole) == "full"
    for frozen, method in kept.items():
        assert method_of(replace(whole, adapter=Adapter(rank=8, frozen=frozen))) == method


def test_recommend_leaves_out_devices_that_the_software_does_not_run_on():
    run = replace(scenario().run, stack=read_stack("neuronx"))
    check(run, FixedLayout(), devices=False)
    # The lists have its reserved price alone, a year of which nobody signs for a short run unless a budget asks for it.
    goals = Goals(budget_usd=1e9)
    found = recommend(run, devices=["h100-sxm", "trainium1"], most_devices=64, goals=goals)
    assert {option.device for option in found.options} == {"trainium1"}
    assert "does not run on devices of kind cuda" in str(found.refused)


def test_axes_that_lack_are_told_by_method():
    run = replace(scenario(on="h100-sxm").run, stack=read_stack("hf-trainer"))
    assert lacking_axes(run) == ("pp", "ep")
    adapters = replace(run, workload=replace(run.workload, adapter=Adapter(rank=8)))
    assert lacking_axes(adapters) == ("tp", "pp", "ep")
    with pytest.raises(RecipeError, match="does not run on devices of kind cuda"):
        lacking_axes(replace(run, stack=read_stack("neuronx"), cluster=cluster("h100-sxm")))


def test_quantised_weights_ask_for_kernels_that_some_devices_lack():
    """bitsandbytes has none for TPUs and Trainium."""
    for name in ("8xtpu-v5e", "8xtrainium1"):
        with pytest.raises(RecipeError, match=r"quantised weights on devices of kind (tpu|neuron)"):
            scenario(stack="default", method="qlora", on=name)
        assert scenario(stack="default", method="lora", on=name).run.stack


def test_software_that_is_not_named_is_planned_with_what_most_has():
    """Tensors and pipelines divide no adapters of PEFT and no weights of bitsandbytes, asked for or not."""
    chosen = choose(scenario(stack="default", method="qlora", model=model("llama3-70b"), on="8xrtx-3090")).parallel
    assert (chosen.tp, chosen.pp, chosen.cp) == (1, 1, 1)
    adapters = choose(scenario(method="lora", model=model("qwen3-14b"), on="8xascend-910b2")).parallel
    assert (adapters.tp, adapters.dp_shard * adapters.dp_replicate) == (1, 8), "nor PEFT's adapters"
    for method, layout in (("lora", {"tp": 2}), ("lora", {"pp": 2}), ("qlora", {"tp": 8}), ("qlora", {"cp": 2})):
        with pytest.raises(RecipeError, match="default does not run this layout "):
            scenario(stack="default", method=method, layout=layout)


def test_all_weights_are_tuned_by_data_parallelism_where_that_fits():
    """Pipelines are chosen for the same work trained anew; stacks of tuning have none, or only where one asks."""
    for asked in (
        {"model": model("bert-base"), "on": "4xrtx-3080", "task": "classify", "examples": 67_000, "epochs": 3.0},
        {"model": model("llama3-8b"), "on": "8xh100-sxm", "method": "full", "packing": "off"},
        {"model": model("qwen3-30b-a3b"), "on": "16xh100-sxm", "method": "full"},
    ):
        tuned = scenario(**asked)
        chosen = choose(tuned).parallel
        assert (chosen.tp, chosen.pp, chosen.ep) == (1, 1, 1)
        assert set(lacking_axes(tuned.run)) == {"tp", "pp", "ep"}
        free = choose(replace(tuned, run=replace(tuned.run, tunes=False))).parallel
        assert free.tp * free.pp * free.ep > 1
    named = scenario(stack="axolotl", model=model("llama3-8b"), on="8xh100-sxm", method="full")
    assert lacking_axes(named.run) == ("tp", "pp"), "tensors where its user says so, pipelines nowhere"


def test_other_axes_tune_what_data_parallelism_has_no_room_for_and_the_plan_says_so():
    asked = Question(model=model("qwen3-8b"), on="4xa100-40gb", method="full", sequence_tokens=32_768)
    assert not choose(scenario_of(replace(asked, layout={"tp": 1, "pp": 1}))).forecast.fits[0]
    plan = planned(scenario_of(asked)).plan
    assert plan.estimate.fits and plan.parallel.tp * plan.parallel.pp > 1
    (said,) = [each for each in plan.estimate.assumptions if each.key == "division"]
    assert said.value.startswith(f"tp {plan.parallel.tp}") and "does not fit" in said.source
    layout = {"tp": plan.parallel.tp, "pp": plan.parallel.pp}
    wanted = planned(scenario_of(replace(asked, layout=layout))).plan
    assert not [each for each in wanted.estimate.assumptions if each.key == "division"], "who asks knows"


def test_software_of_one_source_is_found_and_not_offered():
    assert set(stack_names()) - set(offered()) == {
        "fms-fsdp",
        "hf-trainer-plugin",
        "megatron-core-ci",
        "mlperf",
        "plain-loop",
    }
    assert read_stack("megatron-core-ci").fit["time"]["rows"] > 100


def test_a_precision_that_this_trainer_lacks_is_refused_of_it_alone() -> None:
    asked = Question(model=model("llama3-8b"), on="8xb200-sxm", precision="nvfp4")
    scenario_of(asked)
    with pytest.raises(RecipeError, match=r"trainwright does not run this precision .seen nvfp4, expected bf16, fp32"):
        scenario_of(replace(asked, stack="trainwright"))
