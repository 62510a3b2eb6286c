"""A training on a fake process group: its plan here or on a cluster, and what every rank would keep and send."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainwright.artifact.events import Events, Listener
from trainwright.core.errors import RecipeError
from trainwright.core.registry import load
from trainwright.pipeline.graph import Step
from trainwright.pipeline.planning import asked_layout, plan_here, question_about
from trainwright.planner.counts.parallel.dry_run import DryRun
from trainwright.planner.evidence.finished import Ledger
from trainwright.planner.plan.cluster import plan_run
from trainwright.planner.plan.layout import mesh
from trainwright.planner.plan.scenario import scenario_of
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.layout import LayoutSection


def dry_run(training: Step, *, root: Path, on: str | None = None, listeners: tuple[Listener, ...] = ()) -> DryRun:
    """Returns what each rank of a training would do; nothing is started and nothing is written.

    Args:
        training: one training (``planning.training_of``).
        root: its workspace, which need not exist.
        on: a cluster, ``8x8xh100-sxm``; None: this machine, with as many ranks as the recipe's layout has.
        listeners: called with every event, for progress.

    Raises:
        RecipeError: the layout cannot run, or the trainer cannot execute it.
    """
    plan, notes = (_plan_here(training, root=root), ()) if on is None else _plan_on(training, on=on, root=root)
    events = Events(None, run=training.recipe.name, listeners=listeners)

    def tell(done: int, places: int) -> None:
        events.progress("dry run", done, total=places, unit="places")

    count = load("trainwright.stages.train.ranks.dry_run.run:dry_run", kind="layout")
    run: DryRun = count(training.recipe, plan, tell)
    return replace(run, notes=(*notes, *run.notes)) if notes else run


def _plan_here(training: Step, *, root: Path) -> Plan:
    """Returns the plan of this machine; a layout that is asked for is of its processors, which any number may share."""
    recipe = training.recipe
    if isinstance(recipe.train.exec.layout, LayoutSection):
        recipe = _with_exec(recipe, device="cpu")
    return plan_here(replace(training, recipe=recipe), root=root, ledger=Ledger())


def _plan_on(training: Step, *, on: str, root: Path) -> tuple[Plan, tuple[str, ...]]:
    """Returns the plan of ``plan RECIPE --on``, or the fastest that the trainer executes, and why it is another one.

    A layout of the recipe that ``plan`` does not follow, for it has other ranks than the cluster, is refused here.
    """
    how = training.recipe.train.exec
    question = question_about(training, on=on, root=root)
    if question.here is not None:
        raise RecipeError(
            "a dry run of this machine needs no --on", where="--on", seen=on, fix="leave it out, or name a device"
        )
    if isinstance(how.layout, LayoutSection) and not question.layout:
        question = replace(question, layout=asked_layout(how))
    scenario = scenario_of(question)
    refuses = load("trainwright.stages.train.layout:refuses", kind="layout")
    reasons = refuses(training.recipe, scenario.run.model, scenario.run.workload)
    plan = plan_run(scenario)
    if not (against := reasons(plan.parallel, plan.workload.recompute)):
        return plan, ()
    chosen = mesh(plan.parallel, plan.workload.recompute)
    why = f"which this trainer does not execute: {'; '.join(against)}"
    note = f"another layout than plan --on {on} chooses ({chosen}), {why}"
    return plan_run(replace(scenario, refuses=reasons)), (note,)


def _with_exec(recipe: Recipe, **changes: object) -> Recipe:
    section = recipe.train.model_copy(update={"exec": recipe.train.exec.model_copy(update=changes)})
    return recipe.model_copy(update={"train": section})
