"""Which bundle the server reads, and which model is meant by a directory; no torch, so that both are told at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.artifact.model_folder import CHAT_TEMPLATE, HUGGINGFACE, SHAPE_FILE
from trainwright.artifact.store import MANIFEST
from trainwright.core.errors import DataError, RecipeError

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


def chat_model(place: Path) -> Path:
    """Returns the folder of the model to talk to.

    Args:
        place: a folder with a model in it (a trained artefact, a Hugging Face directory), an export, or a workspace:
            there the newest model with a chat template is meant, else the newest one.

    Raises:
        DataError: there is no such directory, or no model in it.
    """
    if not place.is_dir():
        raise DataError("no such directory", where=place, expected="a model, an export, or a workspace with one")
    folder = _model_in(place)
    if folder is not None:
        return folder
    try:
        models = sorted(_models_of(place), reverse=True)
    except OSError as error:
        raise DataError("cannot list this directory", where=place, seen=error.strerror) from error
    if not models:
        raise DataError(
            "no model here",
            where=place,
            expected="a model, an export, or a workspace with one",
            fix="trainwright export RECIPE makes one",
        )
    return models[0][-1]


def _models_of(workspace: Path) -> Iterator[tuple[bool, int, Path]]:
    """Yields of each finished artefact with a model: whether it has a chat template, when it was made, the folder."""
    for manifest in workspace.glob(f"*/{MANIFEST}"):
        folder = _model_in(manifest.parent)
        if folder is not None and not manifest.parent.name.endswith(".partial"):
            yield (folder / CHAT_TEMPLATE).is_file(), manifest.stat().st_mtime_ns, folder


def _model_in(place: Path) -> Path | None:
    """Returns the folder of the one model of a directory, which is itself or an export's; None where there is none."""
    folders = (place, place / SERVED)
    return next((each for each in folders if any((each / name).is_file() for name in (SHAPE_FILE, HUGGINGFACE))), None)
