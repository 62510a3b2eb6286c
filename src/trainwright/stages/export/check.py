"""What is wrong with an export and can be known before anything runs; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.core.errors import TrainwrightError
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.export import EXPORTER


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    del tokenizer
    for number, name in enumerate(recipe.export.formats):
        yield from EXPORTER.problems(name, where=f"export.formats.{number}")
