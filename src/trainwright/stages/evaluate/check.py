"""What is wrong with an evaluation and can be known before anything runs, or once a tokenizer is there; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.artifact.prompts import length_problems, prompt_problem
from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.spec.recipe import Recipe
from trainwright.stages.evaluate.questions import read_questions


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe.

    Args:
        recipe: the recipe.
        tokenizer: a tokenizer.json, where there is one: prompts are then counted in its tokens.
    """
    yield from _splits(recipe)
    yield from _questions(recipe)
    section, context = recipe.evaluate, recipe.model.context_tokens
    if section.prompts or section.questions is not None:
        yield from length_problems(section, "max_new_tokens", where="evaluate", context_tokens=context)
    for number, prompt in enumerate(section.prompts):
        problem = prompt_problem(prompt, tokenizer, context_tokens=context)
        if problem is not None:
            yield RecipeError(
                "{problem}",
                where=f"evaluate.prompts.{number}",
                fix=f"{'shorten it' if prompt else 'write a text'}, or take it out of evaluate.prompts",
                problem=problem,
            )


def _questions(recipe: Recipe) -> Iterator[TrainwrightError]:
    """Yields why the recipe's questions cannot be asked."""
    section = recipe.evaluate.questions
    if section is None:
        return
    if not recipe.model_spec(vocabulary=1).writes_text:
        yield RecipeError(
            "questions are asked of a model that writes text",
            where="evaluate.questions",
            seen=f"task {recipe.task.name} of {recipe.model.family}",
            fix="leave evaluate.questions out",
        )
        return
    try:
        read_questions(section)
    except TrainwrightError as error:
        yield error.at("evaluate.questions", seen=" ".join(map(str, filter(None, (error.where, error.seen)))))


def _splits(recipe: Recipe) -> Iterator[TrainwrightError]:
    shares = recipe.data.split.model_dump()
    there = [name for name in recipe.evaluate.splits if shares[name] > 0]
    for name in recipe.evaluate.splits:
        if shares[name] > 0:
            continue
        other = f"write evaluate.splits: [{', '.join(there)}]" if there else "write evaluate.splits: [train]"
        yield RecipeError(
            "there will be no {split} split to measure",
            where="evaluate.splits",
            seen=f"data.split.{name}: 0",
            fix=f"{other}, or give data.split.{name} a share",
            split=name,
        )
