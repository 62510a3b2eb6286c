"""Which of the exported bundles the server reads; no torch, so that a recipe is refused before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.core.errors import RecipeError

SERVED = "huggingface"
"""The format that the server reads, and its folder in the exported artefact."""


def served_problems(formats: tuple[str, ...]) -> Iterator[RecipeError]:
    """Yields why none of these formats can be served."""
    if SERVED not in formats:
        yield RecipeError(
            "no bundle that can be served",
            where="export.formats",
            seen=", ".join(formats),
            expected=f"{SERVED} among them",
            fix="add it, or list stages without serve",
        )
