"""Finished runs correct the next plan of this machine, and of a cluster of its device, and say so."""

import json
import math

import pytest

from fixtures.finished import finished
from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.hardware.machine.record import Machine
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.evidence.finished import Ledger, read_ledgers
from trainwright.planner.evidence.published_run import questions
from trainwright.planner.evidence.references import experienced, references_of
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.sweep import varied
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.rates.learnt import RUN_NOISE
from trainwright.spec.plan import INTERVAL
from trainwright.testing.machine import fake_facts, fake_machine


@pytest.fixture
def plan(tmp_path):
    """``plan(line, ..., machine=, overrides=)``: the plan with a ledger of these lines."""

    def made(*lines, machine=None, overrides=()):
        path = tmp_path / "ledger.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return plan_of(planned_recipe(tmp_path, *overrides), machine, read_ledgers([path]))

    return made


def noted(made, name="measured runs"):
    return next(each for each in made.estimate.assumptions if each.name == name)


def width(made):
    return made.estimate.seconds.high / made.estimate.seconds.low


def test_the_same_run_again_is_predicted_as_it_was_measured_in_a_narrower_range(plan, tmp_path):
    before, after = plan(), plan(finished(tmp_path, slower=1.1, larger=1.05))
    old, new = before.estimate, after.estimate
    assert new.phases.total_s == pytest.approx(1.1 * old.phases.total_s, rel=0.03)
    assert new.tokens_per_s * new.phases.total_s == pytest.approx(old.tokens_per_s * old.phases.total_s)
    assert new.memory.total_bytes == pytest.approx(1.05 * old.memory.total_bytes, rel=0.01)
    assert (new.memory.weights, new.memory.optimizer) == (old.memory.weights, old.memory.optimizer)
    assert new.seconds.mid == pytest.approx(new.run_phases.total_s)
    assert width(after) < 0.95 * width(before)
    assert new.run_phases.checkpoint == old.run_phases.checkpoint


def test_it_says_how_many_runs_and_how_new(plan, tmp_path):
    lines = [finished(tmp_path, slower=1.1, run=f"r{day}", day=day) for day in (1, 20, 3)]
    entry = noted(plan(*lines))
    assert entry.origin == "ledger"
    assert entry.source.startswith("calibrated by 3 runs of the ledger, newest 2026-11-20; ")
    assert noted(plan(*lines), "range of the time").origin == "ledger"
    assert [each.name for each in plan(*lines).estimate.assumptions].count("range of the time") == 1


def test_a_run_of_a_moment_says_nothing_of_time(plan, tmp_path):
    """Its first steps, which warm a process up, are most of it."""
    before, after = plan(), plan(finished(tmp_path, slower=6.0, larger=1.05, steps=20))
    assert after.estimate.seconds.mid == before.estimate.seconds.mid and width(after) == pytest.approx(
        width(before), rel=0.1
    )
    assert after.estimate.memory.total_bytes == pytest.approx(1.05 * before.estimate.memory.total_bytes, rel=0.01)
    assert "1 shorter than 10 s: its memory counts alone" in noted(after).source


def test_one_run_is_a_run_and_none_is_not_spoken_of(plan, tmp_path):
    assert "calibrated by 1 run of the ledger" in noted(plan(finished(tmp_path))).source
    assert "measured runs" not in {each.name for each in plan().estimate.assumptions}
    assert plan() == plan_of(planned_recipe(tmp_path))


def test_more_runs_that_agree_are_believed_more(plan, tmp_path):
    lines = [finished(tmp_path, slower=1.1, run=f"r{count}") for count in range(8)]
    widths = [width(plan(*lines[:count])) for count in (0, 1, 2, 8)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] >= math.exp(2 * INTERVAL * RUN_NOISE)


def test_a_machine_that_is_always_slower_is_believed_to_be(plan, tmp_path):
    lines = [finished(tmp_path, slower=3.0, run=f"r{count}") for count in range(3)]
    learnt, before = plan(*lines), plan()
    assert learnt.estimate.phases.total_s == pytest.approx(3 * before.estimate.phases.total_s, rel=0.03)
    assert width(learnt) < width(before)


def test_one_run_that_is_far_off_widens_the_range_to_hold_both(plan, tmp_path):
    before, learnt = plan().estimate, plan(finished(tmp_path, slower=3.0)).estimate
    assert before.seconds.mid < learnt.seconds.mid < 3 * before.seconds.mid
    assert learnt.seconds.low < 1.05 * before.seconds.mid and learnt.seconds.high > 2.95 * before.seconds.mid


def test_runs_of_one_shape_that_disagree_widen_the_range(plan, tmp_path):
    both = plan(*(finished(tmp_path, slower=each, run=str(each)) for each in (1.0, 2.0)))
    assert width(both) > width(plan())
    assert both.estimate.seconds.low < plan().estimate.seconds.mid


@pytest.mark.parametrize("override", ["train.sequence_tokens=64", "model.width=256", "train.precision=fp32"])
def test_a_run_of_another_shape_corrects_less_but_is_heard(plan, tmp_path, override):
    if "precision" not in override:
        override = f"{override} train.precision=bf16"
    line = finished(tmp_path, *override.split(), slower=1.2)
    before, same, near = plan(), plan(finished(tmp_path, slower=1.2)), plan(line)
    old, like, far = (made.estimate.phases.total_s for made in (before, same, near))
    assert old < far < like
    assert width(same) < width(near) < width(before)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "Other CPU"}, "of another machine (Other CPU, 4 cores)"),
        ({"cores": 8}, "of another machine (Ideal CPU, 8 cores)"),
        ({"host_memory_bytes": 8 << 30}, "of another machine (memory 8 GiB)"),
        ({"torch": "1.13.1"}, "of another torch (1.13.1)"),
        ({"torch": None}, "of another torch (None)"),
        ({"parallel": {"threads": 2}}, "with 2 threads in place of 4"),
        ({"devices": 2, "parallel": {"dp_shard": 2}}, "of another machine"),
    ],
)
def test_runs_of_another_machine_or_software_are_left_out_and_named(plan, tmp_path, changes, reason):
    learnt = plan(finished(tmp_path, slower=2.0, changes=changes))
    assert noted(learnt).value == "none like this"
    assert "1 left out: " in noted(learnt).source and reason in noted(learnt).source
    assert learnt.estimate.seconds == plan().estimate.seconds


MOMENTUM = "train.optimizer.name=contract.additions.optimizers:momentum"


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        (MOMENTUM, "with optimizer 'contract.additions.optimizers:momentum', which is counted as another"),
        ("task.name=contract.additions.tasks:TASK", "with task 'contract.additions.tasks:TASK', which"),
        ("model.family=fixtures.other_network:FAMILY", "with network 'fixtures.other_network:Narrow', which"),
    ],
)
def test_what_is_counted_as_another_corrects_plans_of_its_own_alone(plan, tmp_path, override, reason):
    line = finished(tmp_path, override, slower=2.0, larger=0.8)
    other, own = plan(line), plan(line, overrides=[override])
    assert f"1 left out: {reason}" in noted(other).source
    assert other.estimate.seconds == plan().estimate.seconds and other.estimate.memory == plan().estimate.memory
    assert "calibrated by 1 run" in noted(own).source
    assert own.estimate.memory.total_bytes < plan(overrides=[override]).estimate.memory.total_bytes
    measured = finished(tmp_path, slower=2.0)
    assert "calibrated by 1 run" in noted(plan(measured, overrides=[override])).source


def test_lines_from_before_optimizers_were_named_still_read(plan, tmp_path):
    older = {name: value for name, value in json.loads(finished(tmp_path)).items() if name != "unmeasured"}
    assert "calibrated by 1 run" in noted(plan(json.dumps(older))).source


def test_patch_releases_of_torch_are_one(plan, tmp_path):
    assert "calibrated by 1" in noted(plan(finished(tmp_path, changes={"torch": "2.13.7"}))).source


def test_broken_lines_and_older_forms_are_skipped_and_counted(plan, tmp_path):
    good = finished(tmp_path, slower=1.1)
    old = {name: value for name, value in json.loads(good).items() if name != "format"}
    learnt = plan(good, good[:-40], "[]", json.dumps(old))
    assert noted(learnt).source.endswith("3 lines that cannot be read skipped")
    assert "calibrated by 1 run" in noted(learnt).source
    assert "1 line that cannot be read skipped" in noted(plan("{")).source


def test_a_machine_that_was_never_measured_learns_most(plan, tmp_path):
    bare = Machine(facts=fake_facts())
    # In the precision that facts alone promise to be the fastest; of one run alone a part would be taken for noise.
    lines = [finished(tmp_path, "train.precision=fp32", run=name) for name in "abc"]
    before, after = plan(machine=bare), plan(*lines, machine=bare)
    measured = json.loads(lines[0])["rows"]
    truth = sum(measured[f"step/{phase}"][1] for phase in ("forward", "backward", "update"))
    assert after.estimate.phases.total_s == pytest.approx(truth, rel=0.5)
    assert abs(math.log(after.estimate.phases.total_s / truth)) < abs(math.log(before.estimate.phases.total_s / truth))
    assert width(after) < width(before)


def test_where_runs_needed_more_memory_a_smaller_layout_is_taken(plan, tmp_path):
    before = plan()
    available = before.estimate.memory.total_bytes * 1.02
    small = fake_machine(memory_bytes=int(available / 0.95))
    line = finished(tmp_path, larger=1.06, changes={"host_memory_bytes": small.facts.memory_bytes})
    tight, learnt = plan(machine=small), plan(line, machine=small)
    assert tight.estimate.fits and learnt.estimate.fits
    assert learnt.parallel.micro_batch_sequences < tight.parallel.micro_batch_sequences
    assert learnt.estimate.memory.total_bytes <= learnt.estimate.memory_available_bytes
    assert learnt.estimate.memory_available_bytes == tight.estimate.memory_available_bytes


def test_what_is_trained_does_not_depend_on_what_was_trained_before(plan, tmp_path):
    before, after = plan(), plan(*(finished(tmp_path, slower=5.0, run=str(count)) for count in range(3)))
    assert after.workload == before.workload and after.parallel == before.parallel


def test_only_the_newest_runs_are_learnt_from(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("trainwright.planner.evidence.references.NEWEST", 1)
    lines = [finished(tmp_path, slower=slower, run=str(day), day=day) for day, slower in ((1, 2.0), (9, 1.0))]
    learnt = plan(*lines)
    assert "newest 2026-11-09" in noted(learnt).source and "1 left out: older than the newest 1" in noted(learnt).source
    assert learnt.estimate.phases.total_s == pytest.approx(plan().estimate.phases.total_s, rel=0.02)


def test_an_empty_ledger_is_no_ledger(tmp_path):
    recipe = planned_recipe(tmp_path)
    assert plan_of(recipe, ledger=Ledger()) == plan_of(recipe)


H100 = {"device": "NVIDIA H100 80GB HBM3"}


@pytest.fixture
def ledger(tmp_path):
    def made(*lines):
        path = tmp_path / "ledger.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return read_ledgers([path])

    return made


def learnt_on(name, runs, stack="trainwright"):
    return references_of(runs, cluster(name), read_stack(stack), {})


def test_a_cluster_learns_from_runs_of_its_device_and_names_others(ledger, tmp_path):
    runs = ledger(
        finished(tmp_path, run="h", changes=H100),
        finished(tmp_path, run="c"),
        finished(tmp_path, run="a", changes={"device": "NVIDIA A100-SXM4-80GB"}),
    )
    learnt = learnt_on("8xh100-sxm", runs)
    (reference,) = learnt.references
    run = reference.placed.run
    assert (run.cluster.device.name, run.stack.name) == ("h100-sxm", "trainwright")
    assert (run.model.width, run.workload.batch_tokens) == (128, 1024)
    assert learnt.text == "calibrated by 1 run of the ledger, newest 2026-11-01"
    assert learnt.left_out == (
        "1 left out: on another device (Ideal CPU)",
        "1 left out: on another device (NVIDIA A100-SXM4-80GB)",
    )


def test_a_faster_run_says_faster(ledger, tmp_path):
    slow, fast = (
        learnt_on("h100", ledger(finished(tmp_path, slower=each, changes=H100))).references[0] for each in (2.0, 1.0)
    )
    assert fast.log_speed - slow.log_speed == pytest.approx(math.log(2), rel=1e-4)


def test_a_peak_is_compared_with_what_the_trainer_reports(ledger, tmp_path):
    # On a GPU the trainer sums its classes to torch's reserved peak: no context of the driver, unused blocks counted.
    runs = ledger(finished(tmp_path, changes=H100))
    (reference,) = learnt_on("h100", runs).references
    memory = forecast(reference.placed.run, Layouts.one(reference.placed), CATALOGUE).memory
    assert reference.log_memory == pytest.approx(math.log(runs.runs[0].peak_bytes / float(memory.reserved_bytes[0])))


def test_a_cluster_leaves_out_what_is_counted_as_another_as_well(ledger, tmp_path):
    runs = ledger(finished(tmp_path, MOMENTUM, changes=H100))
    learnt = learnt_on("h100-sxm", runs)
    assert learnt.references == () and "1 left out: with optimizer 'contract." in learnt.left_out[0]
    (row,) = questions(runs.runs)[1]
    assert row.reason.startswith("with optimizer 'contract.")


def test_other_optimizers_in_the_place_of_the_recipes_do_not_learn_from_its_runs(ledger, tmp_path):
    recipe = planned_recipe(tmp_path, MOMENTUM)
    model = recipe.model_spec(vocabulary=1024)
    asked = Question(model=model, on="h100-sxm", stack="trainwright", unmeasured=recipe.unmeasured, tokens=10**6)
    known = experienced(asked, ledger(finished(tmp_path, MOMENTUM, changes=H100)))
    assert known.references and not varied(known, "optimizer", "muon").references
    assert varied(known, "tokens", "2000000").references


def test_runs_of_our_stack_say_nothing_of_others(ledger, tmp_path):
    assert learnt_on("h100-sxm", ledger(finished(tmp_path, changes=H100)), "megatron-core").references == ()


def test_what_cannot_be_predicted_is_left_out_with_the_reason(ledger, tmp_path):
    line = json.loads(finished(tmp_path, changes={"device": "NVIDIA Tesla T4"}))
    line["workload"]["precision"] = "nvfp4"
    learnt = learnt_on("t4", ledger(json.dumps(line)))
    assert learnt.references == () and "1 left out: cannot be predicted: " in learnt.left_out[0]
