"""What a recipe runs: its list of steps, or each stage once where it has no list."""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import unknown
from trainwright.pipeline.graph import STAGES, InputFrom, Step, maker, upstream
from trainwright.pipeline.wiring import wire
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.steps import StepSection


def steps(recipe: Recipe) -> tuple[Step, ...]:
    """Returns every step in running order, those that nobody listed included.

    Raises:
        RecipeErrors: what is wrong with the list; ``where`` are keys such as ``stages.1.from``.
    """
    return _usual(recipe) if recipe.stages is None else wire(recipe, recipe.stages)


def named(recipe: Recipe, *, stage: str, step: str | None, option: str = "--step ") -> Step:
    """Returns the step of a stage that a command is about: the one called ``step``, or the only one.

    A step of another stage stands for the one that it takes or that takes it: ``chat.plan`` for ``chat``.

    Args:
        recipe: with its list of steps.
        stage: what the step is of.
        step: its name; None: the only one.
        option: how the caller lets a user write the name, for errors: ``--step NAME``, ``step=NAME``.

    Raises:
        RecipeError: there is none, there are several and no name, or the named step of another stage has none.
    """
    line = steps(recipe)
    of_stage = [each for each in line if each.stage.name == stage]
    if step is not None:
        if step not in {each.name for each in line}:
            known = [each.name for each in of_stage]
            raise RecipeError("no such step", where=option.strip(" ="), **unknown(step, known))
        chosen = upstream(line, step)[-1]
        if chosen.stage.name == stage:
            return chosen
        near = [each for each in of_stage if each.name in _takes(chosen) or step in _takes(each)]
        if len(near) == 1:
            return near[0]
        raise RecipeError(
            "the step {step} is of another stage",
            where=option.strip(" ="),
            seen=chosen.stage.name,
            expected=f"one of {', '.join(each.name for each in of_stage)}" if of_stage else stage,
            step=step,
        )
    listed = [each for each in of_stage if each.key] or of_stage
    if len(listed) == 1:
        return listed[0]
    names = ", ".join(each.name for each in listed)
    if not listed:
        raise RecipeError(
            "no step of this recipe has the stage {stage}",
            where="stages",
            fix=f"add {{stage: {stage}}} to it",
            stage=stage,
        )
    raise RecipeError(
        "several steps of the stage {stage}",
        seen=names,
        fix=f"say which, for example {option}{listed[-1].name}",
        stage=stage,
    )


def with_trained_model(step: Step, line: Iterable[Step]) -> Recipe:
    """Returns the step's recipe with the model, task, data and training that it follows from, where it has some.

    A step of a list that does not name its input sees the recipe without that training's own keys. Sections that the
    stage itself reads stay as they are.
    """
    trained = [each.recipe for each in upstream(line, step.name) if each.stage.makes == "checkpoint"]
    if not trained:
        return step.recipe
    others = {"model", "task", "data", "train"}.difference(step.stage.sections)
    return step.recipe.model_copy(update={name: getattr(trained[-1], name) for name in others})


def _takes(step: Step) -> set[InputFrom]:
    """Returns what a step takes, but for the checkpoint that it begins with, which is another's."""
    return {source for role, source in step.inputs.items() if role != "base"}


def with_step(recipe: Recipe, *, stage: str) -> Recipe:
    """Returns the recipe, with a step of this stage at the end of its list where the list has none."""
    if recipe.stages is None or any(section.stage == stage for section in recipe.stages):
        return recipe
    return recipe.model_copy(update={"stages": (*recipe.stages, StepSection(stage=stage))})


def to_optimize(recipe: Recipe, *, step: str | None, option: str = "--step ") -> tuple[Recipe, str]:
    """Returns the recipe with a step that optimises one of its trainings, and that step's name.

    A listed step of this stage is taken as it is; where there is none, the training's own keys and inputs are the new
    step's.

    Args:
        recipe: with its list of steps.
        step: the training, or the step of this stage; None: the only one.
        option: how the caller lets a user write the name, for errors.

    Raises:
        RecipeError: as ``named``.
    """
    listed = recipe.stages or ()
    if any(section.stage == "optimize" for section in listed):
        return recipe, named(recipe, stage="optimize", step=step, option=option).name
    training = named(recipe, stage="train", step=step, option=option)
    own = next((section for section in listed if section.title == training.name), StepSection(stage="train"))
    section = own.model_copy(update={"stage": "optimize", "name": f"optimize-{training.name}"})
    return recipe.model_copy(update={"stages": (*listed, section)}), section.title


def _usual(recipe: Recipe) -> tuple[Step, ...]:
    """Returns each stage that the task has a use for once, under its own name; none whose input only a list can name.

    Inputs that may be left out are those of other lines.
    """
    makes = recipe.task.kind.makes
    line = {
        name: stage
        for name, stage in STAGES.items()
        if stage.usual
        and stage.task_makes in (None, makes)
        and all(role == need.kind or need.optional for role, need in stage.needs.items())
    }
    return tuple(
        Step(
            name=stage.name,
            stage=stage,
            recipe=recipe,
            inputs={
                role: maker(need.kind).name
                for role, need in stage.needs.items()
                if role == need.kind and maker(need.kind).name in line
            },
        )
        for stage in line.values()
    )
