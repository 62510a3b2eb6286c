import math
from dataclasses import replace

import pytest

from trainwright.core.records import from_json, to_json
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.forecast.shares import step_without
from trainwright.planner.plan.cluster import plan_run, planned, verdict
from trainwright.planner.plan.layout import parse_layout
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.rates.learnt import Reference
from trainwright.spec.plan import Plan
from trainwright.spec.run import PlacedRun, RunSpec
from trainwright.spec.workload import ParallelPlan, Workload

LARGE = Question(model=catalogue_model("llama3-70b"), on="64x8xh100-sxm", tokens=10**12, price=2.0)
PIPED = Question(
    model=catalogue_model("llama3-70b"),
    on="64x8xh100-sxm",
    tokens=10**12,
    stack="megatron-core",
    layout=parse_layout("tp=8,pp=8"),
)
DEEPSEEK = Question(
    model=catalogue_model("deepseek-v3"),
    on="256x8xh800-sxm",
    precision="fp8",
    stack="hai-llm",
    sequence_tokens=4096,
    batch_tokens=15360 * 4096,
    tokens=10**12,
)
"""A trillion tokens of DeepSeek-V3, as its paper has batches and machines."""


@pytest.fixture(scope="module", params=[LARGE, PIPED], ids=["sharded", "pipelined"])
def made(request):
    return planned(scenario_of(request.param))


def test_phases_partition_the_step_and_the_run(made):
    estimate = made.plan.estimate
    assert estimate.phases.total_s == pytest.approx(float(made.choice.forecast.step_s[0]))
    assert estimate.run_phases.total_s == pytest.approx(estimate.seconds.mid)
    assert estimate.tokens_per_s == pytest.approx(made.plan.workload.batch_tokens / estimate.phases.total_s)


def test_a_bubble_is_planned_in_the_phase_in_which_a_run_measures_it(made):
    step, phases = made.choice.forecast.step, made.plan.estimate.phases
    assert phases.communicate == pytest.approx(float(step.communicate[0] + step.idle[0]))
    assert phases.other == pytest.approx(float(step.host[0]))


def test_memory_is_within_the_device_where_it_fits(made):
    estimate = made.plan.estimate
    assert estimate.fits and estimate.memory.total_bytes <= estimate.memory_available_bytes
    assert estimate.memory_interval.low < estimate.memory_interval.mid < estimate.memory_interval.high


def test_a_pipeline_is_played_out_and_says_so():
    piped, plain = planned(scenario_of(PIPED)), planned(scenario_of(LARGE))
    (noted,) = (each for each in piped.plan.estimate.assumptions if each.name == "pipeline")
    forecast = piped.choice.forecast
    idle = float(forecast.step.idle[0] / forecast.step_s[0])
    assert noted.value == f"{idle:.1%} idle"
    assert "of 8 stages" in noted.source and "played out" in noted.source
    # The head is on the last stage alone, so that the closed form, in which every stage has it, waits longer.
    closed = step_without(forecast)
    assert 0 < idle < float(closed.idle[0] / closed.total_s[0])
    assert "pipeline" not in {each.name for each in plain.plan.estimate.assumptions}


def test_hardware_utilisation_counts_what_is_recomputed(made):
    estimate = made.plan.estimate
    if made.choice.recompute == "full":
        assert 1.2 < estimate.hfu / estimate.mfu < 1.34
    else:
        assert estimate.hfu == estimate.mfu


def test_dollars_follow_time_and_price():
    estimate = plan_run(scenario_of(LARGE)).estimate
    assert estimate.usd.mid == pytest.approx(estimate.seconds.mid / 3600 * 512 * 2.0)
    assert estimate.needs.device_hours == pytest.approx(estimate.seconds.mid / 3600 * 512)


def test_every_assumption_says_where_it_comes_from(made):
    for entry in made.plan.estimate.assumptions:
        assert entry.origin == "given" or entry.source, entry.name
    assert len({entry.name for entry in made.plan.estimate.assumptions}) == len(made.plan.estimate.assumptions)


def test_a_plan_is_a_record():
    plan = plan_run(scenario_of(PIPED))
    assert to_json(from_json(Plan, to_json(plan), where="x")) == to_json(plan)


def test_what_is_offloaded_must_fit_into_the_host():
    asked = {"model": catalogue_model("llama3-70b"), "layout": parse_layout("offload=all")}
    plan = plan_run(scenario_of(Question(on="8xrtx-4090", **asked)))
    assert plan.estimate.memory.total_bytes < plan.estimate.memory_available_bytes
    assert plan.estimate.needs.host_memory_bytes > plan.cluster.node.host_memory_bytes
    assert plan.estimate.fit == "does not fit"
    assert plan_run(scenario_of(Question(on="8xa100-80gb", **asked))).estimate.fits


def test_nvme_takes_what_is_too_much_for_the_host_and_its_size_counts_too():
    asked = {"model": catalogue_model("llama3-70b"), "on": "8xrtx-4090"}
    made = planned(scenario_of(Question(layout=parse_layout("offload=all-nvme"), **asked)))
    plan, node = made.plan, made.plan.cluster.node
    assert plan.estimate.fit != "does not fit"
    assert plan.estimate.needs.nvme_available_bytes == node.nvme_bytes > plan.estimate.needs.nvme_bytes > 1e12
    # Buffers and processes; a checkpoint is not copied into memory too.
    assert plan.estimate.needs.host_memory_bytes < 200e9
    assert any(share.name == "offload to NVMe" for share in plan.estimate.shares)
    entry = next(entry for entry in plan.estimate.assumptions if entry.name == "NVMe of a node")
    assert (entry.origin, entry.value) == ("default", "reads 3.2 GB/s, writes 2 GB/s")
    there = replace(plan.cluster, node=replace(node, nvme_bytes=10**12))
    small = replace(made.choice.forecast, run=replace(made.choice.forecast.run, cluster=there))
    assert verdict(small) == "does not fit"


def test_what_is_too_large_does_not_fit():
    plan = plan_run(scenario_of(Question(model=catalogue_model("llama3-70b"), on="8xrtx-4090")))
    assert plan.estimate.fit == "does not fit"
    assert not plan.estimate.fits
    assert plan.estimate.memory.total_bytes > plan.estimate.memory_available_bytes


def test_what_is_assumed_of_experts_is_said():
    asked = replace(DEEPSEEK, layout={"pp": 16, "tp": 4, "ep": 64})
    made, even = (planned(scenario_of(each)).plan for each in (asked, replace(asked, expert_imbalance=1.25)))
    noted, told = ({each.name: each for each in plan.estimate.assumptions} for plan in (made, even))
    fullest = "load of the fullest rank of experts"
    assert 1 < noted[fullest].value < 1.1 and noted[fullest].origin == "default"
    assert (told[fullest].value, told[fullest].origin) == (1.25, "given")
    assert even.estimate.phases.total_s > made.estimate.phases.total_s
    assert even.estimate.memory.activations > made.estimate.memory.activations
    assert noted["tokens to experts"].value.startswith("one copy for each node")
    assert noted["blocks that predict further tokens"].value == 1
    without = planned(scenario_of(replace(asked, further_layers=0))).plan
    assert not any(each.name.startswith("blocks") for each in without.estimate.assumptions)
    assert sum(without.parameters.values()) == 671_026_404_352


def test_the_papers_layout_is_about_the_fastest_and_needs_no_recomputation():
    """arXiv 2412.19437, section 3.2: pipelines of 16, experts on 64, no division of tensors; 2.664M H800-hours."""
    asked = replace(DEEPSEEK, moments="bf16", tokens=14_800_000_000_000)
    theirs = planned(scenario_of(replace(asked, layout={"pp": 16, "tp": 1, "cp": 1, "ep": 64, "micro_batch": 1})))
    best = planned(scenario_of(asked))
    assert theirs.choice.recompute == "none" and theirs.choice.parallel.schedule == "dualpipe"
    assert theirs.plan.estimate.fit != "does not fit"
    assert theirs.plan.estimate.phases.total_s < 1.05 * best.plan.estimate.phases.total_s
    hours = float(theirs.run.parts.steps_s[0]) * 2048 / 3600
    assert hours == pytest.approx(2_664_000, rel=0.15)


def test_communication_of_both_ways_sums_to_what_is_exposed():
    made = planned(scenario_of(replace(DEEPSEEK, layout={"pp": 16, "tp": 4, "ep": 64, "schedule": "dualpipe"})))
    sent_s = float(made.choice.forecast.step.communicate[0])
    assert sum(part.seconds for part in made.plan.estimate.exposed) == pytest.approx(sent_s)
    assert made.plan.parallel.schedule == "dualpipe"


def test_runs_that_say_nothing_or_too_much_are_spoken_of():
    asked = Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm", tokens=10**9, stack="torchtitan")
    work = Workload(sequence_tokens=8192, batch_tokens=8192 * 8, steps=1, precision="bf16", optimizer="adamw")
    run = RunSpec(model=asked.model, workload=work, cluster=cluster("8xa100-sxm-80gb"), stack=stack("megatron-core"))

    def noted(run, log_speed):
        placed = PlacedRun(run=run, parallel=ParallelPlan(dp_shard=8))
        reference = Reference(placed=placed, log_speed=log_speed, log_memory=None)
        plan = plan_run(scenario_of(replace(asked, references=(reference,)))).estimate.assumptions
        return next(each for each in plan if each.name == "measured runs")

    other = noted(run, 0.1)
    assert other.value == "nothing learnt"
    assert "of a100-sxm-80gb with megatron-core, and not h100-sxm with torchtitan" in other.source
    like = replace(run, cluster=cluster("8xh100-sxm"), stack=stack("torchtitan"))
    assert "as fast as predicted" not in noted(like, 0.1).source
    assert "one is 8 x as fast as predicted, believed in part" in noted(like, math.log(8)).source


@pytest.mark.parametrize(("micro_batch", "doubt"), [(1, 1), (2, 1), (4, 2)])
def test_a_range_of_memory_ends_where_unused_memory_is_given_back_and_the_search_judges_by_it_too(micro_batch, doubt):
    asked = Question(
        model=catalogue_model("llama2-7b"), on="rtx-4090", method="lora", layout={"micro_batch": micro_batch}
    )
    made = planned(scenario_of(asked))
    (found,) = made.choice.forecast.memory.doubt(made.plan.cluster.device)
    estimate = made.plan.estimate
    assert found == doubt
    assert (estimate.memory_interval.high <= estimate.memory_available_bytes) == (doubt < 2)


@pytest.mark.parametrize("on", ["h100-sxm", "rtx-4090"])
def test_a_range_of_memory_is_one_where_a_run_fits_and_where_it_does_not(on):
    for method in ("full", "lora", "qlora"):
        estimate = plan_run(scenario_of(Question(model=catalogue_model("llama3-8b"), on=on, method=method))).estimate
        assert estimate.memory_interval.low <= estimate.memory_interval.mid <= estimate.memory_interval.high
