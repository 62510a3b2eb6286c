"""A training beside a run stands where the run stood, and leaves the run alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.core.errors import RecipeError, TrainingError
from trainwright.render.progress import TaskState
from trainwright.spec.event import Event
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.checkpoints import Checkpoints, State
from trainwright.stages.train.observe.child import CHECKPOINTS, begin_at, carry_out, plan_of, trainer_at
from trainwright.stages.train.step import TrainingStep
from trainwright.stages.train.world import ALONE


def folder_with(root: Path, *steps: int) -> Path:
    for step in steps:
        path = root / CHECKPOINTS / f"step-{step:08d}"
        path.mkdir(parents=True)
        (path / "checkpoint.json").write_text("[]")
    (root / CHECKPOINTS / ".step-00000099").mkdir(parents=True)
    return root


@pytest.mark.parametrize(("step", "taken"), [(3, []), (4, ["step-00000004"]), (11, ["step-00000008"])])
def test_the_newest_checkpoint_before_the_step_is_begun_with(tmp_path, step, taken) -> None:
    run, out = folder_with(tmp_path / "run", 4, 8, 12), tmp_path / "look"
    (out / "left").mkdir(parents=True)
    begin_at(out, run, step=step)
    assert [path.name for path in (out / CHECKPOINTS).iterdir()] == taken
    assert [path.name for path in out.iterdir()] == [CHECKPOINTS], "what an earlier look left is gone"
    assert all((path / "checkpoint.json").is_file() for path in (out / CHECKPOINTS).iterdir())


def test_without_a_run_it_begins_at_the_start(tmp_path) -> None:
    begin_at(tmp_path / "look", None, step=5)
    assert not list((tmp_path / "look" / CHECKPOINTS).iterdir())


@pytest.fixture
def context(make_recipe, inputs_for, tmp_path):
    """Of a run of eight updates, in a folder of its own."""
    told = list[Event]()

    def make(name: str = "look", **train: object) -> Context:
        recipe = make_recipe(exec_log_every_steps=1, **train)
        out = tmp_path / name
        out.mkdir()
        events = Events(None, run="tiny", listeners=(told.append,))
        return Context(recipe=recipe, inputs=inputs_for(recipe), out=out, root=tmp_path, events=events)

    make.told = told
    return make


def test_the_way_is_told_from_its_begin(context) -> None:
    here = context()
    with trainer_at(here, plan_of(here), ALONE, step=6, last=7):
        state = TaskState(name="train")
        for event in context.told:
            if event.kind == "progress":
                state.update(event)
        assert state.finished and state.total == 6
        assert state.elapsed_s > 0, "steps take time"


def test_the_trainer_stands_where_the_run_stood(context, train, tmp_path) -> None:
    here = context()
    train(here.recipe, here.inputs, tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    begin_at(here.out, tmp_path / "run", step=8)
    with trainer_at(here, plan_of(here), ALONE, step=8, last=8) as resumed:
        assert resumed.resumed_from == 8
        weights = {name: each.clone() for name, each in resumed.network.named_parameters()}
    fresh = context("fresh")
    with trainer_at(fresh, plan_of(fresh), ALONE, step=8, last=8) as trainer:
        assert trainer.resumed_from is None and trainer.progress.step == 8
        assert all(torch.equal(each, weights[name]) for name, each in trainer.network.named_parameters())
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}


@pytest.fixture
def third_is_broken(monkeypatch):
    """The third update's loss is no number."""
    calls, gradient = iter(range(1, 100)), TrainingStep.gradient

    def broken(self, batch):
        loss_sum, weight = gradient(self, batch)
        return (loss_sum * float("nan") if next(calls) == 3 else loss_sum), weight

    monkeypatch.setattr(TrainingStep, "gradient", broken)


def test_an_update_that_was_refused_on_the_way_is_told(context, third_is_broken) -> None:
    here = context()
    with (
        pytest.raises(TrainingError, match="update 3, on the way to this step, was refused") as raised,
        trainer_at(here, plan_of(here), ALONE, step=5, last=6),
    ):
        pytest.fail("it stands before no such step")
    assert "loss nan" in raised.value.seen and "look at update 3, or at one before it" in raised.value.fix


def test_the_update_itself_may_be_one_that_is_refused(context, third_is_broken) -> None:
    here = context()
    with trainer_at(here, plan_of(here), ALONE, step=2, last=3) as trainer:
        ((update, _),) = trainer.updates(2, 3)
    assert not update.loss_sum.isfinite()


def test_updates_that_the_run_leaves_out_are_left_out_on_the_way(context, third_is_broken) -> None:
    here = context(faults={"not_finite": "skip"})
    with trainer_at(here, plan_of(here), ALONE, step=5, last=6) as trainer:
        assert trainer.progress.step == 5


def test_what_is_saved_is_complete_at_the_end(context, monkeypatch) -> None:
    closed, leave = [], Checkpoints.__exit__
    monkeypatch.setattr(Checkpoints, "__exit__", lambda self, *raised: (closed.append(self), leave(self, *raised))[1])
    here = context()
    with trainer_at(here, plan_of(here), ALONE, step=2, last=3) as trainer:
        trainer.checkpoints.save(
            State(network=trainer.network, optimizers=trainer.optimizers, progress=trainer.progress)
        )
    assert closed == [trainer.checkpoints]
    assert [path.name for path in (here.out / CHECKPOINTS).iterdir()] == ["step-00000002"]


def test_a_step_beyond_the_run_is_refused(context) -> None:
    here = context()
    with (
        pytest.raises(RecipeError, match="the run ends before this step"),
        trainer_at(here, plan_of(here), ALONE, step=7, last=9),
    ):
        pass


@pytest.mark.parametrize(
    ("parallel", "reason"),
    [(ParallelPlan(offload="all"), "set offload=none"), (ParallelPlan(cp=2), "whole sequences; set cp=1")],
)
def test_a_plan_that_cannot_be_executed_is_refused(make_recipe, inputs_for, tmp_path, monkeypatch, parallel, reason):
    recipe = make_recipe()
    monkeypatch.setattr(type(recipe.task), "kind", replace(recipe.task.kind, divides=False))
    inputs = inputs_for(recipe, parallel=parallel)
    here = Context(recipe=recipe, inputs=inputs, out=tmp_path, root=tmp_path, events=Events(None, run="t"))
    with pytest.raises(RecipeError, match=f"cannot execute this plan .*{reason}"):
        carry_out(here, lambda context, plan, world: None)
