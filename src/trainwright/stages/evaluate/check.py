"""What is wrong with an evaluation and can be known before anything runs, or once a tokenizer is there; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.artifact.prompts import prompt_problem
from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.spec.recipe import Recipe


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe.

    Args:
        recipe: the recipe.
        tokenizer: a tokenizer.json, where there is one: prompts are then counted in its tokens.
    """
    yield from _splits(recipe)
    yield from _completions(recipe)
    for number, prompt in enumerate(recipe.evaluate.prompts):
        problem = prompt_problem(prompt, tokenizer, context_tokens=recipe.model.context_tokens)
        if problem is not None:
            yield RecipeError(
                "{problem}",
                where=f"evaluate.prompts.{number}",
                fix=f"{'shorten it' if prompt else 'write a text'}, or take it out of evaluate.prompts",
                problem=problem,
            )


def _completions(recipe: Recipe) -> Iterator[TrainwrightError]:
    """A written length that no completion can have; the default is cut to what fits."""
    section, context = recipe.evaluate, recipe.model.context_tokens
    if section.prompts and "max_new_tokens" in section.model_fields_set and section.max_new_tokens >= context:
        yield RecipeError(
            "no completion is so long: the context holds prompt and answer",
            where="evaluate.max_new_tokens",
            seen=section.max_new_tokens,
            expected=f"below model.context_tokens ({context})",
        )


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
