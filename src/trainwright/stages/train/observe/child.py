"""A training beside a run: it goes on from the run's checkpoints, makes some of its steps, and leaves the run alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trainwright.artifact.checkpoint.index import checkpoints_in, step_of
from trainwright.artifact.reading import PLAN, read_plan
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.stage import Context
from trainwright.core.errors import RecipeError, TrainingError
from trainwright.core.registry import load
from trainwright.runtime.execution import torch_settings
from trainwright.spec.plan import Plan
from trainwright.stages.train.layout import check_executable
from trainwright.stages.train.stage import settings_of, trainer_of
from trainwright.stages.train.trainer import Trainer
from trainwright.stages.train.world import ALONE, Work, World

CHECKPOINTS = "checkpoints"
ACTION = "trainwright.runtime.faults.gate:action_of"
TOLD_EVERY = 20
"""Steps on the way between two lines of progress."""


def carry_out(context: Context, work: Work) -> None:
    """Does a piece of work as the plan says, in this process or on its ranks.

    Raises:
        RecipeError: the trainer cannot execute the plan.
        TrainwrightError: of the work, or a rank that died, by its number.
    """
    plan = plan_of(context)
    check_executable(plan, context.recipe)
    if plan.parallel.ranks == 1:
        work(context, plan, ALONE)
    else:
        load("trainwright.stages.train.ranks.start:work_on_ranks", kind="layout")(context, plan, work)


def plan_of(context: Context) -> Plan:
    """Returns the plan among the inputs.

    Raises:
        DataError: it is damaged.
    """
    planned = context.input("plan")
    planned.verify()
    return read_plan(planned.file(PLAN))


def begin_at(out: Path, run: Path | None, *, step: int) -> None:
    """Makes an empty folder that begins where a run's newest checkpoint of at most ``step`` updates stands.

    Args:
        out: the folder; what an earlier look left there is deleted.
        run: the run's folder; None where it has none yet.
        step: updates.
    """
    shutil.rmtree(out, ignore_errors=True)
    (out / CHECKPOINTS).mkdir(parents=True)
    found = [] if run is None else checkpoints_in(run / CHECKPOINTS)
    usable = [path for path in found if step_of(path) <= step]
    if usable:
        (out / CHECKPOINTS / usable[-1].name).symlink_to(usable[-1].absolute(), target_is_directory=True)


@contextmanager
def trainer_at(context: Context, plan: Plan, world: World, *, step: int, last: int) -> Iterator[Trainer]:
    """Yields a trainer that has made ``step`` updates and goes on to ``last``; its clock counts all phases.

    Raises:
        RecipeError: the run is shorter.
        TrainingError: an update on the way was refused, and the recipe does not leave such ones out.
        TrainwrightError: as ``train``.
    """
    prepared = context.input("dataset")
    prepared.verify()
    dataset = TokenDataset.open(prepared.path)
    settings = settings_of(context.recipe, plan, dataset)
    if last > settings.steps:
        most = f"at most {settings.steps}"
        raise RecipeError("the run ends before this step", where="train.duration", seen=str(last), expected=most)
    with torch_settings(settings):
        trainer, _ = trainer_of(context, settings, dataset, world)
        trainer.clock.start()
        counted = world.counted(trainer.network, trainer.clock, compiled=settings.compiled)
        with trainer.checkpoints, counted:
            begin = trainer.progress.step
            if world.leads and begin < step:  # the way is as long as it takes from here
                context.events.progress("train", begin, total=step, unit="steps")
            for done, _ in enumerate(trainer.updates(begin, step), start=begin + 1):
                if world.leads and (done % TOLD_EVERY == 0 or done == step):
                    context.events.progress("train", done, total=step, unit="steps")
            _check_way(trainer, begin)
            trainer.progress = replace(trainer.progress, step=step)
            trainer.clock.stop()
            yield trainer


def _check_way(trainer: Trainer, begin: int) -> None:
    """Stops where the gate shut on the way from step ``begin``: all updates after that one were refused as well."""
    gate, section = trainer.step.gate, trainer.recipe.train.faults
    assert gate is not None
    for fault in gate.faults(reading=True):
        if load(ACTION, kind="fault")(section, fault) != "skip":
            raise TrainingError(
                "update {update}, on the way to this step, was refused",
                where="train.faults",
                seen=f"loss {fault.loss:.4g}, gradient norm {fault.norm:.4g}",
                fix=f"look at update {begin + fault.number + 1}, or at one before it",
                update=begin + fault.number + 1,
            )
