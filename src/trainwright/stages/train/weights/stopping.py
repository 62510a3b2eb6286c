"""Early stopping: when validations no longer get better, and the weights of the best one (``train.early_stopping``).

Counted is in ``TrainingProgress``, so that every checkpoint has it: a training that was killed goes on to the same end.
What is measured is of the whole validation split and the same on every process; the leading one decides all the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainwright.artifact.checkpoint.index import folder_of
from trainwright.artifact.events import Events
from trainwright.core.errors import RecipeError
from trainwright.core.registry import load
from trainwright.core.spelling import did_you_mean
from trainwright.spec.sections.updates.stopping import EarlyStoppingSection
from trainwright.spec.summary import EarlyStopping
from trainwright.stages.train.decisions import Decisions
from trainwright.stages.train.metrics import finite
from trainwright.stages.train.saving.reading import damage, restored

if TYPE_CHECKING:
    from trainwright.stages.train.trainer import Trainer

NO_MEASURE = "trainwright.stages.train.faults.policy:no_measure"


def judged(trainer: Trainer, decided: Decisions, validation: dict[str, Any] | None, events: Events) -> Decisions:
    """Takes down a validation, and returns what follows the step: the end of the run where it waited long enough.

    All processes must ask together.

    Raises:
        RecipeError: there is no validation split, or nothing of the metric's name is measured.
        TrainingError: the run ends with a loss that is no number.
    """
    section, at = _section(trainer), trainer.progress
    _check(section, validation)
    value = finite(validation).get(section.metric)
    better: bool = trainer.world.gathered(value is not None and section.is_better(value, at.best))[0]
    waited = 0 if better else at.waited + 1
    trainer.progress = replace(at, best=value if better else at.best, waited=waited)
    if waited < section.patience or decided.last:
        return decided
    if trainer.progress.best is None:
        raise load(NO_MEASURE, kind="fault")(trainer)
    events.message(
        f"stopped early after step {at.step:,} of {trainer.settings.steps:,}: {waited} validations in a row "
        f"without a better {section.metric} than {trainer.progress.best:.6g}"
    )
    trainer.progress = replace(trainer.progress, stopped_early=True)
    return replace(decided, last=True, checkpoint=True, stop=None)


def concluded(trainer: Trainer, validation: dict[str, Any] | None, events: Events) -> dict[str, Any] | None:
    """Gives the network the weights that the result has, and returns their validation; all processes must ask together.

    Args:
        trainer: has made its last step.
        validation: of the weights after it; None where an earlier session made it.
        events: where it is said which weights they are.

    Raises:
        DataError: the checkpoint of the best validation is damaged.
    """
    section, result_step = _section(trainer), trainer.progress.step
    best = trainer.world.gathered(trainer.checkpoints.best() if section.restore_best else None)[0]
    if best is not None and best["step"] != result_step:
        result_step = best["step"]
        path = trainer.checkpoints.root / folder_of(result_step)
        problem = damage(path, trainer.world)
        if problem is not None:
            raise problem
        restored(path, trainer.network, trainer.optimizers, trainer.world)
        events.message(f"the result has the weights of step {result_step:,}, whose {section.metric} is the best")
        evaluation = trainer.evaluation()
        validation = None if evaluation is None else evaluation.as_json(unit=trainer.task.unit)
    trainer.early_stopping = EarlyStopping(planned_steps=trainer.settings.steps, result_step=result_step)
    return validation


def _section(trainer: Trainer) -> EarlyStoppingSection:
    section = trainer.recipe.train.early_stopping
    assert section is not None
    return section


def _check(section: EarlyStoppingSection, validation: dict[str, Any] | None) -> None:
    if validation is None:
        raise RecipeError(
            "the dataset has no validation split, by which training could stop early",
            where="train.early_stopping",
            fix="set data.split.validation above 0, or leave early_stopping out",
        )
    names = validation["metrics"]
    if section.metric not in names:
        raise RecipeError(
            "validation measures nothing of this name",
            where="train.early_stopping.by",
            seen=section.metric,
            expected=f"one of {', '.join(names) or 'none'}",
            fix=did_you_mean(section.metric, names),
        )
