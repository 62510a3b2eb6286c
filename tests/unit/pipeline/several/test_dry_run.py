from dataclasses import dataclass

import pytest

from trainwright import api
from trainwright.core.errors import RecipeError
from trainwright.core.registry import load
from trainwright.pipeline import planning
from trainwright.pipeline.planning import question_about, training_of
from trainwright.pipeline.several import dry_run as module
from trainwright.pipeline.several.dry_run import dry_run
from trainwright.planner.plan.cluster import plan_run
from trainwright.planner.plan.scenario import scenario_of
from trainwright.spec.plan import Plan
from trainwright.testing.machine import fake_machine

RECIPE = """\
name: planned
model: {layers: 2, width: 128, heads: 2, context_tokens: 128}
data: {sources: [{kind: python-stdlib}], tokenizer: {vocabulary: 1024}}
train:
  sequence_tokens: 128
  batch_tokens: 16384
  duration: 30 steps
  exec: {layout: {dp_shard: 64}, micro_batch: 2}
"""


@dataclass(frozen=True)
class Counted:
    """What stands for a dry run: the plan that it is given, and what is noted beside it."""

    plan: Plan
    notes: tuple[str, ...] = ()


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Called with overrides and a cluster."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE)
    monkeypatch.setattr(planning, "left_here", lambda *args, **kwargs: None)
    monkeypatch.setattr(planning, "machine_of", lambda recipe, root: fake_machine())

    def loaded(name, kind):
        return (lambda recipe, plan, tell: Counted(plan)) if name.endswith(":dry_run") else load(name, kind=kind)

    monkeypatch.setattr(module, "load", loaded)

    def run(*overrides, on=None):
        training, _ = training_of(api.load_recipe("r.yaml", overrides=overrides), root=tmp_path, step=None)
        return dry_run(training, root=tmp_path, on=on)

    return run


@pytest.fixture
def planned(counted):
    """The same, for the plan alone."""
    return lambda *overrides, on=None: counted(*overrides, on=on).plan


def test_the_layout_of_the_recipe_needs_no_devices(planned):
    plan = planned()
    assert (plan.parallel.dp_shard, plan.cluster.devices, plan.cluster.device.kind) == (64, 64, "cpu")


def test_another_cluster_is_planned_in_the_layout_of_the_recipe(planned):
    plan = planned("train.exec.layout.zero_stage=2", on="8x8xh100-sxm")
    parallel = plan.parallel
    assert (parallel.dp_shard, parallel.zero_stage, parallel.micro_batch_sequences) == (64, 2, 2)
    assert plan.cluster.device.name == "h100-sxm"


def test_a_cluster_of_other_size_is_refused(planned):
    with pytest.raises(RecipeError, match="64"):
        planned(on="8xh100-sxm")


def test_this_machine_is_no_other_cluster(planned):
    with pytest.raises(RecipeError, match="needs no --on"):
        planned(on="here")


@pytest.mark.parametrize(("moments", "tp"), [("fp32", 2), ("int8", 1)])
def test_a_layout_of_another_cluster_is_one_that_the_trainer_executes(planned, moments, tp):
    few = ("model.context_tokens=1024", "train.sequence_tokens=1024", "train.batch_tokens=2048")
    free = ("train.exec.layout=auto", "train.exec.micro_batch=auto")
    plan = planned(*few, *free, f"train.optimizer.moments={moments}", on="4xh100-sxm")
    assert plan.parallel.tp == tp


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_what_is_recomputed_does_not_decide_which_layouts_are_tried(planned, recompute):
    few = ("model.context_tokens=1024", "train.sequence_tokens=1024", "train.batch_tokens=2048")
    free = ("train.exec.layout=auto", "train.exec.micro_batch=auto", f"train.recompute={recompute}")
    plan = planned(*few, *free, on="4xh100-sxm")  # of two sequences each rank of four cannot have one
    assert (plan.parallel.tp, plan.parallel.dp_shard * plan.parallel.dp_replicate) == (2, 2)
    assert plan.workload.recompute == recompute


FREE = ("model.context_tokens=1024", "train.sequence_tokens=1024", "train.batch_tokens=2048", "train.exec.layout=auto")


def test_a_layout_that_is_left_open_is_the_plans_or_the_run_says_why_it_is_not(counted, tmp_path):
    training, _ = training_of(api.load_recipe("r.yaml", overrides=FREE), root=tmp_path, step=None)
    asked = plan_run(scenario_of(question_about(training, on="4xh100-sxm", root=tmp_path)))
    found = counted(*FREE, on="4xh100-sxm")
    assert (found.plan.parallel, found.notes) == (asked.parallel, ())
    (note,) = counted(*FREE, "train.optimizer.moments=int8", on="4xh100-sxm").notes
    assert note.startswith("another layout than plan --on 4xh100-sxm chooses (")
    assert "which this trainer does not execute: tp=2: " in note
