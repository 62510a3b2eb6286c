from dataclasses import replace

import pytest

from fixtures.planned_models import LLAMA
from trainwright.core.errors import MachineError, RecipeError
from trainwright.hardware.catalogue.accelerators import accelerator
from trainwright.hardware.catalogue.nodes import several
from trainwright.hardware.catalogue.stacks import stack
from trainwright.hardware.machine.nvidia import Gpu
from trainwright.hardware.machine.record import Machine
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.forecast.memory.table import USABLE_HOST_SHARE, usable_bytes
from trainwright.planner.forecast.shares import work_shares
from trainwright.planner.plan.cluster import plan_run, planned
from trainwright.planner.plan.layout import best
from trainwright.planner.plan.machine import this_machine
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import Scenario, scenario_of
from trainwright.planner.plan.sweep import sweep
from trainwright.planner.plan.ways import with_ways
from trainwright.planner.rates.catalogue import Catalogue
from trainwright.planner.rates.probed import SPREAD, Probed
from trainwright.planner.search.changes import larger
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan
from trainwright.testing.machine import BASELINE_BYTES, TRANSIENT, fake_facts, fake_machine, fake_probes

GPU = Gpu(
    name="NVIDIA A100-SXM4-80GB",
    memory_bytes=80 << 30,
    memory_free_bytes=79 << 30,
    compute_capability="8.0",
    driver="550",
    cuda="12.4",
)


@pytest.fixture
def run(workload):
    here = this_machine(fake_machine())
    return RunSpec(model=LLAMA, workload=workload, cluster=here.cluster, stack=stack("trainwright"))


def on(run, here, cluster=None, **changes):
    scenario = Scenario(
        run=replace(run, cluster=cluster or here.cluster),
        layout={},
        recompute=None,
        price=None,
        settings=here.settings,
        assumptions=(),
        source=here.source,
        numbers=here.numbers(run.transformer.layers, compiled=False),
        on_this_machine=True,
    )
    return replace(scenario, **changes)


def sizes(run, *each):
    plans = [ParallelPlan(micro_batch_sequences=size) for size in each]
    return Layouts.of(plans, ["none"] * len(plans), run.workload)


# ----------------------------------------------------------------------------------------------------------- the device
def test_probed_numbers_are_taken_where_they_are_there(run):
    here = this_machine(fake_machine())
    assert isinstance(here.source, Probed)
    process = here.source.process(run)
    assert process.baseline_bytes == BASELINE_BYTES and process.transient == pytest.approx(TRANSIENT, rel=1e-3)
    assert forecast(run, sizes(run, 1), here.source).available_bytes == USABLE_HOST_SHARE * (16 << 30)
    assert here.threads == 4
    assert here.source.spread(run) == SPREAD
    assert {entry.origin for entry in here.assumptions(run, compiled=False)} == {"probed"}


def test_a_plan_from_a_busy_machine_says_so(run):
    quiet = fake_machine()
    busy = this_machine(replace(quiet, probes=replace(quiet.probes, cpu_busy=0.5)))
    names = {entry.name for entry in busy.assumptions(run, compiled=False)}
    assert names - {entry.name for entry in this_machine(quiet).assumptions(run, compiled=False)} == {
        "other programs while measuring"
    }


def test_without_probes_every_number_says_that_it_is_a_default(run):
    here = this_machine(Machine(facts=fake_facts()))
    assert isinstance(here.source, Catalogue)
    assert {entry.origin for entry in here.assumptions(run, compiled=False)} == {"default"}
    assert here.source.spread(run) > 2 * SPREAD


def test_an_unprobed_gpu_is_taken_from_the_catalogue(run):
    here = this_machine(Machine(facts=replace(fake_facts(), gpus=(GPU,))))
    assert here.cluster.device.kind == "cuda"
    assert here.cluster.device.flops_per_s["bf16"] == 312e12
    assert here.cluster.device.visible_bytes == 79 << 30
    assert here.threads is None and here.source.process(run) is None
    assumed = here.assumptions(run, compiled=False)
    assert {entry.origin for entry in assumed if entry.key != "never_run"} == {"catalog"}


@pytest.mark.parametrize(("kind", "wanted"), [("npu", "npu"), ("xpu", "auto")])
def test_a_measured_accelerator_is_planned_for_with_its_own_memory(run, kind, wanted):
    probes = replace(fake_probes(), device_kind=kind, device_name="Accelerator of tomorrow", memory_bytes=64 << 30)
    here = this_machine(Machine(facts=fake_facts(), probes=probes), wanted=wanted)
    assert (here.cluster.device.kind, here.cluster.device.memory_bytes) == (kind, 64 << 30)
    assert usable_bytes(here.cluster.device) <= probes.memory_bytes, "its bytes are measured, not printed GB"
    assert here.threads is None
    (never,) = [entry for entry in here.assumptions(run, compiled=False) if entry.key == "never_run"]
    assert never.value == "never run on hardware"


def test_a_processor_that_training_has_run_on_says_nothing(run):
    assert not [
        entry for entry in this_machine(fake_machine()).assumptions(run, compiled=False) if "never" in entry.key
    ]


def test_cuda_that_is_not_there_cannot_be_planned_for():
    with pytest.raises(MachineError, match=r"no CUDA device here \(seen cpu measured\); set train.exec.device=cpu"):
        this_machine(fake_machine(), wanted="cuda")


@pytest.mark.parametrize("kind", ["npu", "tpu", "cuda", "rocm", "mps", "xpu"])
def test_a_device_that_is_not_there_says_how_it_is_installed_as_training_does(kind, monkeypatch):
    record = accelerator(kind)
    monkeypatch.setattr("trainwright.hardware.catalogue.accelerators.find_spec", lambda name: None)
    with pytest.raises(MachineError) as raised:
        this_machine(fake_machine(), wanted=kind)
    assert f"; where there is one: {record.install}; then trainwright doctor --fresh" in str(raised.value)
    assert (f"and {record.package} is not installed" in str(raised.value)) == bool(record.package)


def test_compiling_costs_time_and_says_so(run):
    here = this_machine(fake_machine())
    plain, compiled = (here.assumptions(run, compiled=each) for each in (False, True))
    assert len(compiled) == len(plain) + 3
    assert here.numbers(2, compiled=True).start_s > here.numbers(2, compiled=False).start_s == 0


# ---------------------------------------------------------------------------------------------------------- a plan here
def test_of_equally_fast_micro_batches_the_largest_is_taken(run):
    here = this_machine(fake_machine())
    choice = best(on(run, here), sizes(run, 1, 2, 4, 8), same_speed=1.02)
    seconds = forecast(run, sizes(run, 8, 1), here.source).step_s
    assert choice.parallel.micro_batch_sequences == 8 and seconds[0] < seconds[1]
    assert len(choice.rejected) == 3
    alike = best(on(run, here), sizes(run, 1, 2, 4, 8), same_speed=100.0)
    assert alike.parallel.micro_batch_sequences == 8


def test_checkpoints_follow_the_clock_and_the_last_one_counts(run):
    here = this_machine(fake_machine())
    none = planned(on(run, here), best(on(run, here), sizes(run, 8)))
    assert none.plan.estimate.run_phases.checkpoint == pytest.approx(float(none.run.checkpoint_s[0]))
    step = none.plan.estimate
    every = (step.phases.total_s * run.workload.steps + step.run_phases.evaluate) / 3.5
    often = on(run, here, settings=replace(here, checkpoint_every_s=every).settings)
    made = planned(often, best(often, sizes(run, 8)))
    assert made.plan.estimate.run_phases.checkpoint == pytest.approx(4 * float(made.run.checkpoint_s[0]))
    assert made.plan.estimate.run_phases.total_s == pytest.approx(made.plan.estimate.seconds.mid)


def test_nothing_fails_here_and_a_dry_pass_comes_first(run):
    here = this_machine(fake_machine())
    estimate = planned(on(run, here), best(on(run, here), sizes(run, 4))).plan.estimate
    step = estimate.phases
    assert estimate.run_phases.other == pytest.approx((step.forward + step.backward) / 2, rel=1e-6)
    # Validation is forward passes over its tokens, without what the head's gradients take.
    share = run.workload.validations * run.workload.validation_tokens / run.workload.batch_tokens
    assert 0.3 * share * step.forward < estimate.run_phases.evaluate < share * step.forward


def test_shares_of_a_step_are_measured_too(run):
    here = this_machine(fake_machine())
    choice = best(on(run, here), sizes(run, 8))
    shares = work_shares(choice.forecast)
    assert sum(share.seconds for share in shares) == pytest.approx(float(choice.forecast.step_s[0]), rel=0.01)
    names = {share.name for share in shares}
    assert {"matrix products of the blocks", "attention", "the optimizer's update"} <= names


# ------------------------------------------------------------------------------------------------- many such machines
def test_a_cluster_of_this_machine_is_planned_with_its_measurements(run):
    here = this_machine(fake_machine())
    asked = Question(
        model=LLAMA,
        on="4x2xhere",
        here=here,
        scale_up="10Gb/s",
        scale_out="20Gb/s",
        stack="trainwright",
        batch_tokens=run.workload.batch_tokens,
        sequence_tokens=run.workload.sequence_tokens,
        tokens=10**6,
    )
    plan, alone = (plan_run(scenario_of(each)) for each in (asked, replace(asked, on="here")))
    assert plan.cluster.devices == 8 and alone.cluster.devices == 1
    assert plan.cluster.node.scale_up.bytes_per_s == plan.cluster.scale_out.bytes_per_s * 1 == 1.25e9
    many = replace(run, cluster=plan.cluster)
    assert 0 < plan.estimate.phases.communicate < plan.estimate.phases.total_s < alone.estimate.phases.total_s
    # Eight devices with an eighth of the batch each make as many products as one alone.
    data = Layouts.of([ParallelPlan(dp_replicate=8, zero_stage=0)], ["none"], run.workload)
    shared = forecast(many, data, here.source)
    whole = forecast(run, sizes(run, 1), here.source)
    assert 8 * shared.step.forward[0] == pytest.approx(whole.step.forward[0])
    assert {each.origin for each in plan.estimate.assumptions if "matrix products" in each.name} == {"probed"}
    assert not [each for each in plan.estimate.assumptions if each.origin == "catalog" and "peak" in each.name]


def test_a_machine_that_nobody_looked_at_is_not_made_up():
    with pytest.raises(RecipeError, match="not looked at"):
        scenario_of(Question(model=LLAMA, on="2x1xhere", scale_out="10Gb/s"))


def test_nodes_of_this_machine_are_varied():
    asked = Question(
        model=LLAMA,
        on="here",
        here=this_machine(fake_machine()),
        scale_out="10Gb/s",
        stack="trainwright",
        batch_tokens=16 * 512,
        sequence_tokens=512,
        tokens=10**6,
    )
    points = [point for point in sweep(asked, "nodes", ("1", "2")).points if point.series == "strong"]
    assert [point.devices for point in points] == [1, 2]
    assert points[1].tokens_per_s > points[0].tokens_per_s


def test_what_would_make_it_fit_here_is_measured_here_too():
    here = this_machine(fake_machine(memory_bytes=800 << 20))
    asked = Question(
        model=LLAMA,
        on="1x1xhere",
        here=here,
        scale_out="10Gb/s",
        stack="trainwright",
        layout={"micro_batch": 64},
        batch_tokens=64 * 512,
        sequence_tokens=512,
        tokens=10**6,
        recompute="none",
    )
    made = planned(scenario_of(asked))
    assert not made.plan.estimate.fits
    names = [each.name for each in with_ways(made).plan.rejected]
    assert "LoRA" in names, "its products are of the rates measured here"
    others = plan_run(scenario_of(replace(asked, layout={}, recompute=None)))
    assert others.estimate.fits == names[0].startswith("layout auto")


def test_more_machines_are_of_this_kind_and_need_a_network():
    here = this_machine(fake_machine())
    assert not list(larger(here.cluster, 8))
    joined = several(here.cluster, "1x2xhere", scale_up="pcie4", scale_out="10Gb/s")
    assert [(each.nodes, each.device) for each in larger(joined, 8)] == [(2, joined.device), (4, joined.device)]
