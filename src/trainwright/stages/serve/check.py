"""Problems of the server's question that can be known before anything runs; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.artifact.bundle import served_problems
from trainwright.artifact.prompts import length_problems, prompt_problem
from trainwright.core.errors import MachineError, RecipeError, TrainwrightError
from trainwright.hardware.machine.nvidia import gpus
from trainwright.model.generation.cache_size import check_cache
from trainwright.spec.recipe import Recipe


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    if recipe.task.kind.makes != "text":
        yield RecipeError("this task writes no text that could be served", where="task.name", seen=recipe.task.name)
    yield from served_problems(recipe.export.names)
    demo = recipe.serve.demo
    if demo is None:
        return  # nothing is served by a run; the command looks at its memory itself
    yield from memory_problems(recipe)
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


def memory_problems(recipe: Recipe) -> Iterator[MachineError]:
    """Yields that a processor's memory cannot hold the cache; a GPU's is known when torch looks."""
    if recipe.serve.engine.name != "torch" or gpus():
        return
    try:
        spec = recipe.model_spec(vocabulary=recipe.data.tokenizer.vocabulary)
        check_cache(spec, places=recipe.serve.max_concurrent, kind="cpu")
    except MachineError as error:
        yield error.at("serve.max_concurrent")
    except RecipeError:
        return  # an impossible model, which the training reports
