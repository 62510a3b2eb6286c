"""Ready-made settings that come with trainwright: files below a recipe's own."""

from __future__ import annotations

from pathlib import Path

import trainwright
from trainwright.core.errors import RecipeError
from trainwright.core.spelling import did_you_mean


def presets() -> dict[str, Path]:
    """Returns names of the presets that come with trainwright, and their files."""
    directory = Path(trainwright.__file__).parent / "catalog" / "presets"
    return {path.stem: path for path in sorted(directory.glob("*.yaml"))}


def preset_file(name: str) -> Path:
    """Returns the file of a preset.

    Raises:
        RecipeError: no such preset.
    """
    known = presets()
    if name not in known:
        raise RecipeError(
            "unknown preset",
            field="preset",
            seen=repr(name),
            expected=f"one of {', '.join(known)}" if known else None,
            fix=did_you_mean(name, known) or "leave it out and give a recipe file",
        )
    return known[name]
