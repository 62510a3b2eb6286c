from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.planned_recipe import GPU, LARGE, plan_of, planned_recipe
from trainwright.core.config.load import load
from trainwright.core.errors import MachineError, RecipeError
from trainwright.hardware.machine.record import Machine
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.plan.estimated_facts import estimated_facts
from trainwright.spec.parts.batch_sizes import BatchPart
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts, ParallelPlan, Workload
from trainwright.stages.plan import build_plan
from trainwright.stages.plan.build import micro_batches
from trainwright.testing.machine import fake_facts, fake_machine


@pytest.fixture
def planned(tmp_path):
    return lambda *overrides, machine=None: plan_of(planned_recipe(tmp_path, *overrides), machine)


def test_every_auto_is_resolved(planned):
    plan = planned()
    assert plan.workload.precision == "bf16"  # four times as fast on this machine
    assert plan.parallel.micro_batch_sequences == 8
    assert plan.parallel.threads == 4
    assert plan.parallel.compile is False
    assert plan.parallel.deterministic is True, "a CPU loses nothing by it"
    assert plan.workload.steps == 100
    assert plan.estimate.fits
    assert plan.model.vocabulary == 1024


def test_what_the_recipe_says_is_kept(planned):
    plan = planned(
        "train.precision=fp32",
        "train.exec.micro_batch=3",
        "train.exec.threads=1",
        "train.exec.compile=true",
        "train.exec.deterministic=false",
    )
    assert plan.workload.precision == "fp32"
    assert plan.parallel.micro_batch_sequences == 3
    assert plan.parallel.threads == 1
    assert plan.parallel.compile is True
    assert plan.parallel.deterministic is False


def test_compilation_is_a_phase_of_the_run_and_of_no_step(planned):
    plain, compiled = (planned(f"train.exec.compile={each}").estimate for each in ("false", "true"))
    assert plain.run_phases.compile == plain.phases.compile == compiled.phases.compile == 0
    assert compiled.run_phases.compile > 0
    assert compiled.run_phases.total_s == pytest.approx(compiled.seconds.mid)
    steps = 100
    assert compiled.run_phases.other < compiled.phases.other * steps + compiled.phases.total_s


def test_precision_does_not_depend_on_whether_the_dataset_is_there(tmp_path, monkeypatch):
    """On a machine where the two precisions change places between the vocabulary asked for and the one made."""

    def step_s(run, layouts, source):
        small = run.model.vocabulary < 1000
        return [2.0 if (run.workload.precision == "bf16") == small else 1.0]

    monkeypatch.setattr("trainwright.stages.plan.build.step_s", step_s)
    recipe = planned_recipe(tmp_path)
    counted = DatasetFacts(vocabulary=900, train_tokens=10_000, train_documents=10, counted=True)
    plans = [
        build_plan(recipe, fake_machine(), facts) for facts in (estimated_facts(recipe, corpus_bytes=None), counted)
    ]
    assert [plan.model.vocabulary for plan in plans] == [1024, 900]
    assert [plan.workload.precision for plan in plans] == ["bf16", "bf16"]


def test_lengths_follow_from_parameters(planned):
    plan = planned("train.duration=2 tok/param")
    assert plan.workload.steps == round(2 * total_parameters(plan.model) / 1024)


def test_epochs_need_the_dataset(planned):
    with pytest.raises(RecipeError, match="not known yet"):
        planned("train.duration=3 epochs")
    with pytest.raises(RecipeError, match="shorter than one update"):
        planned("train.duration=100 tok")


def test_the_length_of_an_estimated_epoch_widens_the_range(tmp_path):
    recipe = planned_recipe(tmp_path, "train.duration=3 epochs", "plan.rent_on=[h100-sxm]")
    guess = estimated_facts(recipe, corpus_bytes=10_000_000)
    counted, estimated = (build_plan(recipe, fake_machine(), facts) for facts in (replace(guess, counted=True), guess))
    assert counted.workload == estimated.workload
    # The fewest and the most tokens that were counted where as many were estimated.
    assert estimated.estimate.seconds.low < 0.65 * counted.estimate.seconds.mid
    assert estimated.estimate.seconds.high > 1.15 * counted.estimate.seconds.high
    assert estimated.rentals[0].seconds_high > 1.05 * counted.rentals[0].seconds_high
    assert estimated.rentals[0].seconds_low < counted.rentals[0].seconds_low
    note = estimated.estimate.assumptions[-1]
    assert note.name == "range of the time" and "how long an epoch is" in note.source


def test_long_runs_are_compiled_where_a_compiler_is(planned):
    assert planned("train.duration=1e6 steps").parallel.compile is True
    machine = fake_machine()
    bare = Machine(facts=type(machine.facts)(**{**as_dict(machine.facts), "compiler": None}), probes=machine.probes)
    assert planned("train.duration=1e6 steps", machine=bare).parallel.compile is False


@pytest.mark.parametrize(("kind", "compiled"), [("cuda", True), ("xpu", True), ("npu", False), ("tpu", False)])
def test_long_runs_are_compiled_only_on_devices_that_compile_by_themselves(planned, kind, compiled):
    machine = fake_machine()
    measured = replace(machine.probes, device_kind=kind, memory_bytes=16 << 30)
    plan = planned("train.duration=1e6 steps", machine=Machine(facts=machine.facts, probes=measured))
    assert plan.parallel.compile is compiled


def test_a_run_that_many_devices_soon_end_is_not_compiled(tmp_path):
    machine = replace(fake_machine(), facts=replace(fake_facts(), gpus=(GPU,) * 8), probes=None)
    sizes = [each for each in LARGE if "compile" not in each] + [
        "train.duration=1500 steps",
        "train.exec.micro_batch=4",
    ]
    alone, many = (
        plan_of(planned_recipe(tmp_path, *sizes, f"train.exec.layout.dp_shard={ranks}"), machine) for ranks in (1, 8)
    )
    assert alone.parallel.compile and not many.parallel.compile
    assert many.estimate.seconds.mid < alone.estimate.seconds.mid / 4


def test_a_machine_that_was_busy_is_compiled_for_by_its_fast_end(planned):
    quiet = fake_machine()
    busy = replace(quiet, probes=replace(quiet.probes, cpu_busy=0.85))
    compiled = {
        steps: [planned(f"train.duration={steps} steps", machine=each).parallel.compile for each in (quiet, busy)]
        for steps in (100, 10**6, *(2**power for power in range(7, 20)))
    }
    assert compiled[100] == [False, False]
    assert compiled[10**6] == [True, True]
    assert [True, False] in compiled.values()
    assert [False, True] not in compiled.values()


def as_dict(record):
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


@pytest.mark.parametrize(
    ("memory_bytes", "change"),
    [(370 << 20, "train.exec.micro_batch=1"), (100 << 20, "a larger device, or a lower model.width")],
)
def test_what_does_not_fit_says_the_smallest_change(planned, memory_bytes, change):
    plan = planned("train.exec.micro_batch=8", "model.width=256", machine=fake_machine(memory_bytes=memory_bytes))
    assert not plan.estimate.fits
    assert plan.rejected[0].name == change


@pytest.mark.parametrize(
    ("memory_bytes", "change"), [(480 << 20, "train.method.frozen=nf4"), (200 << 20, "a larger device")]
)
def test_a_trained_model_keeps_its_layers_and_may_be_kept_in_fewer_bits(planned, memory_bytes, change):
    asked = (
        "train.method.name=lora",
        "model.init_from=base",
        "model.width=1024",
        "model.layers=6",
        "train.optimizer.name=adamw",
    )
    plan = planned(*asked, machine=fake_machine(memory_bytes=memory_bytes))
    assert not plan.estimate.fits
    assert plan.rejected[0].name == change


def test_the_change_it_names_does_fit(planned):
    machine = fake_machine(memory_bytes=370 << 20)
    named = planned("train.exec.micro_batch=8", "model.width=256", machine=machine).rejected
    ways = [each.overrides for each in named if each.overrides]
    assert len(ways) > 1 and named[-1].overrides == ways[-1]
    for keys in ways:
        assert planned("model.width=256", *keys, machine=machine).estimate.fits


def test_the_change_it_names_fits_the_layout(planned):
    shared = ("model.width=256", "train.exec.layout.dp_shard=2")
    machine = fake_machine(memory_bytes=710 << 20)
    advice = planned(*shared, "train.exec.micro_batch=4", machine=machine).rejected[0].overrides
    assert advice == ("train.exec.micro_batch=1",)
    assert planned(*shared, *advice, machine=machine).estimate.fits


def test_rented_devices_are_those_of_the_recipe(planned):
    plan = planned('plan.rent_on=["h100-sxm"]')
    assert [rental.device for rental in plan.rentals] == ["h100-sxm"]
    with pytest.raises(RecipeError, match=r"unknown device .*did you mean"):
        planned('plan.rent_on=["h10"]')


def test_cuda_is_not_planned_where_there_is_none(planned):
    with pytest.raises(MachineError, match="no CUDA device"):
        planned("train.exec.device=cuda")


def test_a_machine_that_was_not_measured_is_planned_with_defaults(planned):
    plan = planned(machine=Machine(facts=fake_facts()))
    assert plan.estimate.fits
    assert "default" in {entry.origin for entry in plan.estimate.assumptions}
    assert "probed" not in {entry.origin for entry in plan.estimate.assumptions}


def test_the_range_without_probes_holds_the_run_of_the_quickstart():
    """On two processors of an EPYC with AVX-512 and bf16 the whole demo took 214 seconds, training most of them."""
    facts = replace(
        fake_facts(),
        cpu="AMD EPYC",
        cpu_features=("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16"),
        cores=2,
        logical_cores=2,
        clock_hz=2.6e9,
        virtual=True,
    )
    path = Path(__file__).parents[4] / "recipes" / "quickstart.yaml"
    recipe = load(Recipe, files=[path], preset=None, overrides=[], environ={}, ignore=frozenset()).value
    seconds = plan_of(recipe, Machine(facts=facts)).estimate.seconds
    assert seconds.low < 150
    assert seconds.mid < 2 * 214 < seconds.high
    assert seconds.high < 10 * seconds.low


def test_a_budget_lies_between_none_and_full_in_memory_and_time(planned):
    def of(*overrides):
        plan = planned("model.layers=4", "train.exec.micro_batch=8", *overrides)
        return plan.estimate.memory.activations, plan.estimate.phases.backward

    none, full = of(), of("train.recompute=full")
    half = of("train.recompute=full", "train.recompute_budget=0.5")
    quarter = of("train.recompute=full", "train.recompute_budget=0.75")
    assert full[0] < half[0] < quarter[0] < none[0]
    assert none[1] < quarter[1] < half[1] < full[1]
    assert half[0] == pytest.approx((none[0] + full[0]) / 2, rel=0.15), "blocks alike, but for one inside"
    assert half[1] == pytest.approx((none[1] + full[1]) / 2, rel=1e-6)


def test_a_budget_without_recomputation_is_refused(planned):
    with pytest.raises(RecipeError, match="recompute_budget leaves blocks out of recompute"):
        planned("train.recompute_budget=0.5")


@pytest.mark.parametrize("sequences", [1, 12, 36, 97, 1000])
def test_a_micro_batch_is_one_of_all_divisors_the_largest_first(tmp_path, sequences):
    workload = Workload(sequence_tokens=16, batch_tokens=16 * sequences, steps=1, precision="fp32", optimizer="adamw")
    expected = tuple(size for size in range(sequences, 0, -1) if sequences % size == 0)
    assert micro_batches(planned_recipe(tmp_path), workload) == expected


def test_a_micro_batch_divides_each_size_of_a_batch_that_grows(tmp_path):
    parts = tuple(BatchPart(batch_tokens=16 * sequences, steps=1) for sequences in (12, 18))
    work = Workload(sequence_tokens=16, batch_tokens=16 * 60, steps=9, precision="fp32", optimizer="adamw", ramp=parts)
    recipe, on_two = planned_recipe(tmp_path), ParallelPlan(dp_shard=2)
    assert micro_batches(recipe, work) == (6, 3, 2, 1)
    assert micro_batches(recipe, work, on_two) == (3, 1)
    assert micro_batches(planned_recipe(tmp_path, "train.exec.micro_batch=20"), work) == (12,)
    assert micro_batches(planned_recipe(tmp_path, "train.exec.micro_batch=4"), work) == (4,), "the last pass is smaller"


def test_the_largest_batch_that_a_recipe_takes_is_planned_in_no_time(planned):
    plan = planned(f"train.batch_tokens={1 << 40}", "train.duration=1 steps")
    assert plan.workload.batch_sequences % plan.parallel.micro_batch_sequences == 0
