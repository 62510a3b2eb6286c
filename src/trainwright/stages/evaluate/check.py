"""What is wrong with an evaluation and can be known before anything runs, or once a tokenizer is there; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.artifact.prompts import length_problems, prompt_problem
from trainwright.core.errors import MissingPackage, RecipeError, TrainwrightError
from trainwright.core.paths import local_path
from trainwright.core.registry import installed, load
from trainwright.spec.recipe import Recipe
from trainwright.stages.evaluate.questions import read_questions

TASKS = "trainwright.stages.evaluate.harness.tasks:problems"
"""Loaded where lm-eval is installed and asked for; it reads the names of all tasks, which takes seconds."""


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe.

    Args:
        recipe: the recipe.
        tokenizer: a tokenizer.json, where there is one: prompts are then counted in its tokens.
    """
    yield from _splits(recipe)
    without_texts = tuple(_for_texts(recipe))
    yield from without_texts
    if without_texts:
        return
    yield from _questions(recipe)
    yield from _benchmarks(recipe)
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


def _for_texts(recipe: Recipe) -> Iterator[TrainwrightError]:
    """Yields each key that is for a model that writes text, where this one writes none."""
    if recipe.model_spec(vocabulary=1).writes_text:
        return
    for key in ("prompts", "questions", "benchmarks"):
        if getattr(recipe.evaluate, key):
            yield RecipeError(
                "{key} are for a model that writes text",
                where=f"evaluate.{key}",
                seen=f"task {recipe.task.name} of {recipe.model.family}",
                fix=f"leave evaluate.{key} out",
                key=key,
            )


def _questions(recipe: Recipe) -> Iterator[TrainwrightError]:
    """Yields why the recipe's questions cannot be asked."""
    section = recipe.evaluate.questions
    if section is None:
        return
    try:
        read_questions(section)
    except TrainwrightError as error:
        yield error.at("evaluate.questions", seen=" ".join(map(str, filter(None, (error.where, error.seen)))))


def _benchmarks(recipe: Recipe) -> Iterator[TrainwrightError]:
    """Yields why the recipe's benchmarks cannot be measured."""
    section = recipe.evaluate.benchmarks
    if section is None:
        return
    if section.include is not None and not any(local_path(section.include).glob("**/*.yaml")):
        expected, where = "a folder with tasks, in files *.yaml", "evaluate.benchmarks.include"
        yield RecipeError("no task is here", where=where, seen=section.include, expected=expected)
    elif not installed("lm_eval"):
        yield MissingPackage("lm-eval", needed_for="evaluate.benchmarks", extra="benchmarks")
    else:
        try:
            yield from load(TASKS, kind="function")(section, context_tokens=recipe.model.context_tokens)
        except TrainwrightError as error:
            yield error


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
