"""Problems of the server's question that can be known before anything runs; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.artifact.bundle import served_problems
from trainwright.artifact.prompts import length_problems, prompt_problem
from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.spec.recipe import Recipe


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    if recipe.task.kind.makes != "text":
        yield RecipeError("this task writes no text that could be served", where="task.name", seen=recipe.task.name)
    yield from served_problems(recipe.export.names)
    demo = recipe.serve.demo
    if demo is None:
        return
    context = recipe.model.context_tokens
    yield from length_problems(demo, "max_tokens", where="serve.demo", context_tokens=context)
    problem = prompt_problem(demo.prompt, tokenizer, context_tokens=context)
    if problem is not None:
        yield RecipeError(
            "{problem}",
            where="serve.demo.prompt",
            fix="write another one, or take serve.demo out",
            problem=problem,
        )
